"""Picking parts of a model: always a glob on dotted names, always called ``where``."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import nn

from torchlift.core.node import Coordinate, lift_coordinates
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
    every = list(names)
    matched = [name for name in every if matches(name, where)]
    if not matched:
        raise SelectionError(f"{who}: {where!r} matches nothing. {closest_names(where, every)}")
    return matched


def closest_names(where: str, names: Iterable[str]) -> str:
    """One sentence that helps: the closest names, or the first few there are."""
    labels = list(dict.fromkeys(name.label if isinstance(name, Name) else name for name in names))
    close = difflib.get_close_matches(where, labels, n=5, cutoff=0.4)
    shown = close or labels[:12]
    more = ", …" if len(labels) > len(shown) else ""
    return f"{'Close' if close else 'There are'}: {', '.join(shown) or 'no names at all'}{more}."


Groups = Mapping[str, Mapping[str, Any]]
"""Options by glob on parameter names: those of an optimizer's group, ``lr_factor``, or ``optimizer``."""


def groups(problem: nn.Module, options: Groups) -> list[dict[str, Any]]:
    """Parameter groups by glob, for any ``torch.optim`` optimizer.

    The first glob that fits a weight decides; a weight no glob fits is an error, and so is a glob that fits
    nothing. Coordinates that a lift has added (a mask's logits, say) are reached only by a glob that names
    them, such as ``"*logit"``, whose options are merged with what the lift asks for. Frozen parameters are
    left out, tied ones stand once.
    """
    trainable = {name: p for name, p in named(problem).items() if p.requires_grad}
    added = lift_coordinates(problem)
    check_globs(options, [(name, added.get(p)) for name, p in trainable.items()])
    return merged_groups(problem, [options])


def merged_groups(problem: nn.Module, layers: Sequence[Groups]) -> list[dict[str, Any]]:
    """Parameter groups from several mappings, the last of which has the last word; see :func:`groups`."""
    added = lift_coordinates(problem)
    by_options: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in named(problem).items():
        if not parameter.requires_grad:
            continue
        coordinate = added.get(parameter)
        options, globs = dict(coordinate.options) if coordinate else {}, list[str | None]()
        for layer in layers:
            where = next((glob for glob in layer if reaches(glob, name, coordinate)), None)
            options |= {} if where is None else layer[where]
            globs.append(where)
        kind = (*globs, *((key, repr(options[key])) for key in sorted(options)))
        by_options.setdefault(kind, {"params": [], **options})["params"].append(parameter)
    return list(by_options.values())


def reaches(glob: str, name: str, coordinate: Coordinate | None) -> bool:
    """Whether options under this glob are meant for a parameter."""
    return matches(name, glob) and (coordinate is None or names_coordinate(glob, coordinate))


def reaching(globs: Iterable[str], problem: nn.Module) -> set[str]:
    """Those of the globs that reach a parameter of the problem."""
    added = lift_coordinates(problem) if globs else {}
    coordinates = [(name, added.get(p)) for name, p in named(problem).items()] if globs else []
    return {
        glob for glob in globs if any(reaches(glob, name, coordinate) for name, coordinate in coordinates)
    }


def names_coordinate(glob: str, coordinate: Coordinate) -> bool:
    """Whether a glob says the coordinate's own name, as ``"*logit"`` and ``"0.weight.logit"`` do."""
    return any(step.lstrip("*") == coordinate.name for step in re.split("[./]", glob))


def check_globs(options: Groups, coordinates: Sequence[tuple[str, Coordinate | None]]) -> None:
    """Globs that reach nothing, and weights that none of them reaches, are errors."""
    for glob in options:
        if glob != "*" and not any(reaches(glob, name, coordinate) for name, coordinate in coordinates):
            close = closest_names(glob, [name for name, _ in coordinates])
            raise SelectionError(f"groups: {glob!r} matches nothing. {close}")
    for name, coordinate in coordinates:
        if coordinate is None and options and not any(matches(name, glob) for glob in options):
            label = name.label if isinstance(name, Name) else name
            raise SelectionError(f'groups: no glob fits {label!r}; end the mapping with "*": {{}}.')
