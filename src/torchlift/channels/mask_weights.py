"""``mask_weights``: single weights set to zero, by a criterion, a pattern or masks of one's own."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.channels.scores import gradients, lamp, n_of_m
from torchlift.core import matches, select, store
from torchlift.core.smallest import smallest_entries
from torchlift.errors import TorchliftError


def mask_weights(
    model: nn.Module,
    ratio: float = 0.5,
    *,
    criterion: Literal["magnitude", "lamp", "taylor", "random"] = "magnitude",
    scope: Literal["global", "local"] = "global",
    where: str = "*weight",
    skip: str | None = None,
    pattern: tuple[int, int] | None = None,
    masks: Mapping[str, Tensor] | None = None,
    loss: Callable[[nn.Module], Tensor] | None = None,
) -> nn.Module:
    """A copy of the model with the part ``ratio`` of the chosen weights zero, those worth least.

    ``criterion``: "magnitude", "lamp", "taylor" (with ``loss``, a function of the model) or "random".
    ``pattern=(2, 4)`` keeps the two best of every four along the inputs instead. ``masks``: by glob, Boolean,
    True where a weight stays, in place of a criterion. Whole channels that end up zero can be cut by
    :func:`shrink`; scattered zeros make files small.
    """
    if not 0 <= ratio < 1:
        raise TorchliftError(f"a ratio lies in [0, 1), got {ratio}: 0.5 drops half of the weights.")
    model = copy.deepcopy(model)
    parameters = {n: p for n, p in model.named_parameters() if p.ndim > 1 and p.is_floating_point()}
    if masks is not None:
        apply(model, dict(model.named_parameters()), masks)
        return model
    chosen = [n for n in select(parameters, where, "mask_weights") if not (skip and matches(n, skip))]
    if criterion == "taylor" and loss is None:
        raise TorchliftError("criterion='taylor' needs loss=, a function of the model that gives a number.")
    grads = gradients(model, loss) if criterion == "taylor" and loss is not None else {}
    scores = (worth(parameters[name].detach(), criterion, grads.get(name)) for name in chosen)
    if pattern is not None:
        keep = [n_of_m(score, *pattern) for score in scores]
    elif scope == "local":
        keep = [~smallest_entries(score, round(ratio * score.numel())) for score in scores]
    else:
        keep = kept_globally(scores, [parameters[name].shape for name in chosen], ratio)
    apply(model, parameters, dict(zip(chosen, keep, strict=True)))
    return model


def worth(weight: Tensor, criterion: str, gradient: Tensor | None) -> Tensor:
    """The scores of a weight's entries."""
    if criterion == "magnitude":
        return weight.abs()
    if criterion == "lamp":
        return lamp(weight)
    if criterion == "random":
        return torch.rand(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    if criterion != "taylor" or gradient is None:
        raise TorchliftError(f"criterion {criterion!r} is not known: magnitude, lamp, taylor or random.")
    return (weight * gradient).abs()


def kept_globally(scores: Iterable[Tensor], shapes: Sequence[torch.Size], ratio: float) -> list[Tensor]:
    """Boolean: all but the lowest scores of all weights together. One score is in memory twice at a time."""
    sizes = [shape.numel() for shape in shapes]
    flat = torch.empty(sum(sizes), dtype=torch.float32)
    for piece, score in zip(flat.split(sizes), scores, strict=True):
        piece.copy_(score.flatten())
    keep = ~smallest_entries(flat, round(ratio * len(flat)))
    return [piece.view(shape) for piece, shape in zip(keep.split(sizes), shapes, strict=True)]


def apply(model: nn.Module, parameters: Mapping[str, nn.Parameter], masks: Mapping[str, Tensor]) -> None:
    """Set to zero what masks do not keep, and record it."""
    for where, keep in masks.items():
        for name in select(parameters, where, "mask_weights"):
            weight = parameters[name]
            if keep.shape != weight.shape:
                raise TorchliftError(
                    f"the mask for {name} has shape {tuple(keep.shape)}, the weight {tuple(weight.shape)}."
                )
            store(model, name, kept=keep)
