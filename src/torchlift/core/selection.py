"""Picking parts of a model: always a glob on dotted names, always called ``where``."""

import difflib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import nn

from torchlift.core.node import optimizer_options
from torchlift.errors import SelectionError

N = TypeVar("N", bound=str)


class Name(str):
    """A parameter's name in a problem that also knows what the user calls it (``label``)."""

    label: str

    def __new__(cls, raw: str, label: str) -> "Name":
        """``raw`` as text."""
        name = super().__new__(cls, raw)
        name.label = label
        return name

    def __reduce__(self) -> tuple[Any, ...]:
        return Name, (str(self), self.label)


def named(problem: nn.Module) -> dict[Name, nn.Parameter]:
    """The parameters of a problem (tied ones once) by names a glob can pick in the user's words too."""
    label = getattr(problem, "label", lambda raw: raw)  # a bare module's names are the user's
    return {Name(raw, label(raw)): parameter for raw, parameter in problem.named_parameters()}


RECURRENT = re.compile(r"\b(weight|bias)_(ih|hh|hr)(_l\d+(_reverse)?)?$")  # rnn.weight_ih_l0: rnn.weight too


def matches(name: str, where: str) -> bool:
    """Whether the glob fits a dotted name, or what the user calls it."""
    labels = {str(name), name.label if isinstance(name, Name) else name}
    return any(fnmatchcase(one, where) for label in labels for one in (label, RECURRENT.sub(r"\1", label)))


def select(names: Iterable[N], where: str, who: str) -> list[N]:
    """The names that fit ``where``; an error that lists near matches when there are none."""
    known = list(names)
    found = [name for name in known if matches(name, where)]
    if not found:
        raise SelectionError(f"{who}: {where!r} matches nothing. {near(where, known)}")
    return found


def near(where: str, names: Iterable[str]) -> str:
    """One sentence that helps: the closest names, or the first few there are."""
    known = [name.label if isinstance(name, Name) else name for name in names]
    close = difflib.get_close_matches(where, known, n=5, cutoff=0.4)
    shown = close or known[:12]
    more = ", …" if len(known) > len(shown) else ""
    return f"{'Close' if close else 'There are'}: {', '.join(shown) or 'no names at all'}{more}."


def groups(problem: nn.Module, options: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups by glob, for any ``torch.optim`` optimizer.

    The first glob that fits a parameter decides; a parameter no glob fits is an error. Options that a
    node declares for its own coordinates (no weight decay on a mask's logits, say) hold unless the
    glob's options override them. Frozen parameters are left out, tied ones stand once.
    """
    declared = optimizer_options(problem)
    trainable = {name: p for name, p in named(problem).items() if p.requires_grad}
    for where in options:
        if where != "*":
            select(trainable, where, "groups")
    sorted_out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in trainable.items():
        where = next((w for w in options if matches(name, w)), None)
        if where is None:
            raise SelectionError(f'groups: no glob fits {name.label!r}; end the mapping with "*": {{}}.')
        chosen = {**declared.get(parameter, {}), **options[where]}
        kind = (where, *((key, repr(chosen[key])) for key in sorted(chosen)))
        sorted_out.setdefault(kind, {"params": [], **chosen})["params"].append(parameter)
    return list(sorted_out.values())
