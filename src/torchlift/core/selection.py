"""Picking parts of a model: always a glob on dotted names, always called ``where``."""

import difflib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from torchlift.core.errors import SelectionError
from torchlift.core.node import optimizer_options

PREFIXES = ("model.", "base.", "student.")

RECURRENT = re.compile(r"\b(weight|bias)_(ih|hh|hr)_l\d+(_reverse)?$")
"""How torch's recurrent layers name their weights; ``rnn.weight_ih_l0`` answers to ``rnn.weight`` too."""


def matches(name: str, where: str) -> bool:
    """Whether the glob fits the dotted name, with or without the problem's own prefixes (``model.``, …)."""
    if fnmatchcase(name, where):
        return True
    if (plain := RECURRENT.sub(r"\1", name)) != name and fnmatchcase(plain, where):
        return True
    prefix = next((p for p in PREFIXES if name.startswith(p)), None)
    return prefix is not None and matches(name[len(prefix) :], where)


def select(names: Iterable[str], where: str, who: str) -> list[str]:
    """The names that fit ``where``; an error that lists near matches when there are none."""
    known = list(names)
    found = [name for name in known if matches(name, where)]
    if not found:
        raise SelectionError(f"{who}: {where!r} matches nothing. {near(where, known)}")
    return found


def near(where: str, names: list[str]) -> str:
    """One sentence that helps: the closest names, or the first few there are."""
    close = difflib.get_close_matches(where, names, n=5, cutoff=0.4)
    shown = close or names[:12]
    more = ", …" if len(names) > len(shown) else ""
    return f"{'Close' if close else 'There are'}: {', '.join(shown) or 'no names at all'}{more}."


def groups(problem: nn.Module, options: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups by glob, for any ``torch.optim`` optimiser.

    The first glob that fits a parameter decides; a parameter no glob fits is an error. Options that a
    node declares for its own coordinates (no weight decay on a mask's logits, say) hold unless the
    glob's options override them. Frozen parameters are left out, tied ones stand once.
    """
    declared = optimizer_options(problem)
    trainable = {name: p for name, p in problem.named_parameters() if p.requires_grad}
    for where in options:
        if where != "*":
            select(trainable, where, "groups")
    sorted_out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in trainable.items():
        where = next((w for w in options if matches(name, w)), None)
        if where is None:
            raise SelectionError(f'groups: no glob fits {name!r}; end the mapping with "*": {{}}.')
        chosen = {**declared.get(parameter, {}), **options[where]}
        group = sorted_out.setdefault((where, *sorted(chosen.items())), {"params": [], **chosen})
        group["params"].append(parameter)
    return list(sorted_out.values())
