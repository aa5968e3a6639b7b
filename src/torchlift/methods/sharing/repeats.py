"""Which weights of a model could be one: equal shapes in parts that repeat, by names and shapes alone."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from torchlift.core import Name, matches
from torchlift.errors import SelectionError

Signature = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of the weights inside a part: parts with equal ones could swap their weights."""


def groups_alike(weights: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Groups of two or more weights of one shape and type, in parts of one parent that are alike.

    In a wide ResNet these are the convolutions of a stage without its first block, which differs; in a
    transformer the projections of all blocks, by shape. Of prefixes inside one another the outermost count.
    """
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    inside = signatures(shapes)
    alike: dict[tuple[str, Signature, str, tuple[int, ...], torch.dtype], list[str]] = {}
    for name, shape in shapes.items():
        parent = repeated(name, inside)
        if parent is not None:
            alike.setdefault((*parent, name.rpartition(".")[2], shape, weights[name].dtype), []).append(name)
    kept = {key: names for key, names in alike.items() if len(names) > 1}
    parents = [parent for parent, *_ in kept]
    return {title(key[0], names[0], shapes, parents.count(key[0]) > 1): names for key, names in kept.items()}


def signatures(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Signature]:
    """What is inside every part, by the part's name."""
    inside: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for name, shape in shapes.items():
        for prefix in prefixes(name):
            inside.setdefault(prefix, []).append((name[len(prefix) :], shape))
    return {prefix: tuple(signature) for prefix, signature in inside.items()}


def prefixes(name: str) -> list[str]:
    """a.b.c.weight → a, a.b, a.b.c."""
    return list(accumulate(str(name).split(".")[:-1], "{}.{}".format))


def repeated(name: str, inside: Mapping[str, Signature]) -> tuple[str, Signature] | None:
    """The outermost parent on the way to a weight in which the next part stands beside its like."""
    for prefix in prefixes(name):
        parent = prefix.rpartition(".")[0]
        twins = [
            p
            for p, signature in inside.items()
            if p.rpartition(".")[0] == parent and signature == inside[prefix]
        ]
        if len(twins) > 1:
            return parent, inside[prefix]
    return None


def title(parent: str, name: str, shapes: Mapping[str, tuple[int, ...]], several: bool) -> str:
    """A group's name: its place in the user's words, with the shape where several groups are there."""
    raw, own = name.split("."), user_name(name).split(".")
    depth = len(parent.split(".")) - (len(raw) - len(own)) if parent else 0
    where = ".".join(own[:depth]) or "model"
    return f"{where} {'x'.join(map(str, shapes[name]))}" if several else where


def groups_by_glob(
    weights: Mapping[str, Tensor], groups: Mapping[str, Iterable[str]], who: str
) -> dict[str, list[str]]:
    """Groups by the user's globs: each weight in one group, all of a group of one shape."""
    members: dict[str, list[str]] = {}
    for group, glob in groups.items():
        globs = [glob] if isinstance(glob, str) else list(glob)
        names = [name for name in weights if any(matches(name, glob) for glob in globs)]
        taken = [user_name(name) for name in names for other in members.values() if name in other]
        if taken:
            raise SelectionError(f"{who}: {taken[0]} is in two groups; a weight shares with one.")
        if len(names) < 2:
            have = ", ".join(map(user_name, names)) or "nothing"
            raise SelectionError(f"{who}: group {group!r} needs two weights or more; {globs} picks {have}.")
        shapes = {user_name(name): tuple(weights[name].shape) for name in names}
        if len(set(shapes.values())) > 1:
            raise SelectionError(f"{who}: weights of group {group!r} differ in shape: {shapes}.")
        members[group] = names
    return members


def user_name(name: str) -> str:
    """A weight's name in the user's words."""
    return name.label if isinstance(name, Name) else name
