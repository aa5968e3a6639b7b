"""Folding: one stored weight for layers with parallel coefficients, and an account of it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from torchlift.core import Node, Problem, masks_of
from torchlift.core.stored import owner_of
from torchlift.core.weights import fill_names
from torchlift.methods.sharing.mixing import one_for_all
from torchlift.methods.sharing.repeats import prefixes, user_name
from torchlift.methods.sharing.uses import Blended, ScaledUse, Use, scalable

Slots = Mapping[str, list[str]]
"""All places of each weight in the problem: a tied one has several."""


@dataclasses.dataclass(frozen=True)
class Fold:
    """What became of a layer: the weight it uses, times what, and ‖W − c V‖ / ‖W‖."""

    group: str
    layer: str
    stored: str
    scale: float
    error: float
    why: str = ""
    """Why a layer that was to be folded was not."""


def fold_set(problem: Problem, group: str, names: list[str], slots: Slots) -> list[Fold]:
    """Give a set of layers one weight, in place: W⁽ˡ⁾ = c_l V, exact where their weights are parallel.

    Left as they are, with the reason: layers that may not be linear in their weight, layers inside a part
    that is still lifted, pruned layers whose zeros differ from the others'.
    """
    reasons = {name: why_not_folded(problem, slots[name]) for name in names} if len(names) > 1 else {}
    good = [name for name in names if not reasons.get(name)]
    apart = [
        Fold(group, user_name(n), user_name(n), 1.0, 0.0, reasons.get(n, "")) for n in names if n not in good
    ]
    alone = "its zeros are frozen and differ from the others'" if len(good) > 1 else ""
    rows = [row for same in by_zeros(problem, good) for row in merge_set(problem, group, same, slots, alone)]
    return [*rows, *apart]


def merge_set(problem: Problem, group: str, names: list[str], slots: Slots, alone: str) -> list[Fold]:
    """One weight for all of these layers; the one with the largest weight uses it as it is."""
    if len(names) == 1:
        return [Fold(group, user_name(names[0]), user_name(names[0]), 1.0, 0.0, alone)]
    weights = torch.stack([problem.get_parameter(name).detach() for name in names])
    shared, scales, owner = one_for_all(weights)
    stored = nn.Parameter(shared.to(weights))
    rows: list[Fold] = []
    for name, weight, c in zip(names, weights, scales.tolist(), strict=True):
        fill_names(problem, slots[name], stored)
        plain = abs(c - 1) < 1e-12
        if not plain:
            wrap(problem, slots[name], partial(scaled_use, scale=c))
        error = torch.linalg.vector_norm(weight.double() - (1.0 if plain else c) * stored.detach().double())
        size = torch.linalg.vector_norm(weight.double()).clamp(min=torch.finfo(torch.float64).tiny)
        rows.append(
            Fold(group, user_name(name), user_name(names[owner]), 1.0 if plain else c, float(error / size))
        )
    return rows


def blend(
    problem: Problem, group: str, names: Sequence[str], slots: Slots, templates: Tensor, alpha: Tensor
) -> list[Fold]:
    """Let each layer mix its weight from the templates, stored once: exact whatever the coefficients."""
    stored = nn.Parameter(templates.detach().clone())
    for name, row in zip(names, alpha.detach(), strict=True):
        wrap(problem, slots[name], partial(blended, templates=stored, alpha=row.clone()))
    return [Fold(group, user_name(name), f"{len(templates)} templates", 1.0, 0.0) for name in names]


def scaled_use(layer: nn.Module, leaf: str, scale: float) -> nn.Module:
    """The layer's use of the weight it has, times a scale."""
    return ScaledUse(layer, leaf, scale)


def blended(layer: nn.Module, leaf: str, templates: nn.Parameter, alpha: Tensor) -> nn.Module:
    """The layer's use of the templates."""
    return Blended(layer, leaf, templates, alpha)


def wrap(problem: Problem, names: Iterable[str], use: Callable[[nn.Module, str], nn.Module]) -> None:
    """Put ``use(layer, leaf)`` in the place of the layers that own these weights."""
    uses: dict[int, nn.Module] = {}
    for name in names:
        layer, leaf = owner_of(problem, name)
        if id(layer) not in uses:
            uses[id(layer)] = use(layer, leaf)
            uses[id(layer)].train(layer.training)
        parent, attribute = owner_of(problem, name.rpartition(".")[0])
        setattr(parent.inner if isinstance(parent, Use) else parent, attribute, uses[id(layer)])


def why_not_folded(problem: Problem, names: Iterable[str]) -> str:
    """Why a weight cannot be scaled for good, or nothing."""
    for name in names:
        layer, leaf = owner_of(problem, name)
        if lifted(problem, name):
            return "it is inside a part that is still lifted"
        if not scalable(layer, leaf):
            return f"a {type(layer).__name__} may not be linear in its {leaf}"
    return ""


def unblended(problem: Problem, names: Iterable[str]) -> bool:
    """Whether a weight cannot become a mixture: lifted, pruned, or of an RNN (which lists its own)."""
    masks = masks_of(problem)
    return any(
        lifted(problem, name) or name in masks or isinstance(owner_of(problem, name)[0], nn.RNNBase)
        for name in names
    )


def lifted(problem: Problem, name: str) -> bool:
    """Whether a weight is inside a node."""
    return any(isinstance(problem.get_submodule(prefix), Node) for prefix in prefixes(name))


def by_zeros(problem: Problem, names: list[str]) -> list[list[str]]:
    """The weights in sets of equal masks; those without any are one set."""
    masks = masks_of(problem)
    sets: list[tuple[Tensor | None, list[str]]] = []
    for name in names:
        mask = masks.get(name)
        for pattern, members in sets:
            if (mask is None) == (pattern is None) and (
                mask is None or pattern is None or torch.equal(mask, pattern)
            ):
                members.append(name)
                break
        else:
            sets.append((mask, [name]))
    return [members for _, members in sets]
