"""What a weight, or a channel, is worth without training (less goes first), and which channels go for it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Coupling
from torchlift.core import matches
from torchlift.core.smallest import smallest_entries
from torchlift.errors import TorchliftError

Criterion = Literal["magnitude", "taylor", "norm", "random"]
Scope = Literal["local", "global"]
ModelLoss = Callable[[nn.Module], Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningChoice:
    """How channels are chosen: see :func:`prune`."""

    ratio: float | Mapping[str, float] = 0.5
    criterion: Criterion = "magnitude"
    scope: Scope = "local"
    loss: ModelLoss | None = None
    skip: str | None = None
    round_to: int = 1
    gently: bool = False
    """Round only where twice the multiple, or more, is left, and to half of it elsewhere."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.criterion not in ("magnitude", "taylor", "norm", "random"):
            raise TorchliftError(
                f"criterion {self.criterion!r} is not known: magnitude, taylor, norm or random."
            )
        if self.scope not in ("local", "global"):
            raise TorchliftError(f"scope is 'local' or 'global', got {self.scope!r}.")
        if self.criterion == "taylor" and self.loss is None:
            raise TorchliftError(
                "criterion='taylor' needs loss=, a function of the model that gives a number."
            )
        for ratio in self.ratio.values() if isinstance(self.ratio, Mapping) else [self.ratio]:
            if not 0 <= ratio < 1:
                raise TorchliftError(f"a ratio lies in [0, 1), got {ratio}: 0.5 cuts half of the channels.")

    def of(self, name: str) -> float:
        """The ratio of a coupling: that of the first glob its layer fits, else 0."""
        if not isinstance(self.ratio, Mapping):
            return self.ratio
        return next((ratio for glob, ratio in self.ratio.items() if matches(name, glob)), 0.0)


def chosen_channels(free: list[Coupling], scores: list[Tensor], choice: PruningChoice) -> list[Tensor]:
    """Boolean, for each coupling: the channels that go."""
    if choice.scope == "global":
        ratio = choice.of("*")
        relative = torch.cat([s / s.mean().clamp(min=1e-300) for s in scores]) if scores else torch.zeros(0)
        lowest = smallest_entries(relative, round(ratio * len(relative))).split([len(s) for s in scores])
        counts = [min(int(p.sum()), len(p) - 1) for p in lowest]
    else:
        counts = [min(round(choice.of(c.name) * c.channels), c.channels - 1) for c in free]
    counts = [
        gently_rounded(c.channels, n, choice.round_to)[0]
        if choice.gently
        else rounded_count(c.channels, n, choice.round_to)
        for c, n in zip(free, counts, strict=True)
    ]
    return [smallest_entries(score, count) for score, count in zip(scores, counts, strict=True)]


def rounded_count(channels: int, gone: int, round_to: int) -> int:
    """How many go so that a multiple of ``round_to`` is left; none where there is no such number."""
    if round_to < 2 or gone == 0:
        return gone
    left = max(round_to, round((channels - gone) / round_to) * round_to)
    return max(0, channels - left)


WIDTH, LEAST_WIDTH = 8, 4
"""Vector units like multiples of these: 11 channels can take longer than 16."""

NEAR = 1 / 8
"""Rounding moves a width by no more than this part."""


def gently_rounded(channels: int, gone: int, round_to: int = WIDTH) -> tuple[int, int]:
    """How many go so that a multiple is left, and the multiple: ``round_to``, or half of it, and so on, that
    is near and fits twice or more into what is left; no rounding where nothing would go."""
    left, multiple = channels - gone, round_to
    while multiple >= LEAST_WIDTH and gone:
        nearest = round(left / multiple) * multiple
        if 2 * multiple <= nearest < channels and abs(nearest - left) <= NEAR * left:
            return channels - nearest, multiple
        multiple //= 2
    return gone, 1


def cut_evenly(channels: int, ratio: float, round_to: int = WIDTH) -> tuple[int, int]:
    """How many channels of a coupling a ratio cuts, gently rounded, and in what steps that may change."""
    gone, multiple = gently_rounded(channels, min(round(ratio * channels), channels - 1), round_to)
    return gone, min(multiple, LEAST_WIDTH)


def scores_of(model: nn.Module, some: Sequence[Coupling], choice: PruningChoice) -> list[Tensor]:
    """What each channel of each coupling is worth."""
    taylor = choice.criterion == "taylor" and choice.loss is not None
    grads = gradients(model, choice.loss) if taylor and choice.loss else {}
    parameters = dict(model.named_parameters())
    owners = {n: type(p).__name__ for n, p in model.named_modules()}
    return [score(parameters, owners, coupling, choice, grads) for coupling in some]


def score(
    parameters: Mapping[str, Tensor],
    owners: Mapping[str, str],
    coupling: Coupling,
    choice: PruningChoice,
    grads: Mapping[str, Tensor],
) -> Tensor:
    """What each channel of a coupling is worth."""
    if choice.criterion == "random":
        generator = torch.Generator().manual_seed(choice.seed + int(coupling.roots[0]))
        return torch.rand(coupling.channels, generator=generator, dtype=torch.float64)
    members = [m for m in coupling.of("writes") if m.name in parameters]
    if choice.criterion == "norm":
        norms = [m for m in members if "BatchNorm" in owners[m.name.rpartition(".")[0]]]
        members = [m for m in norms if m.name.endswith("weight")] or members
    total = torch.zeros(coupling.channels, dtype=torch.float64)
    for member in members:
        weight = parameters[member.name].detach()
        if choice.criterion == "taylor":
            worth = taylor(weight, grads[member.name], member.dim)
        else:
            worth = magnitude(weight, member.dim)
        total.index_add_(0, member.channel, worth.cpu()[member.index])
    return total.sqrt()


def gradients(model: nn.Module, loss: ModelLoss) -> dict[str, Tensor]:
    """∂f/∂w of every parameter."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    computed = torch.autograd.grad(
        loss(model), list(named.values()), allow_unused=True, materialize_grads=True
    )
    every = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    return every | dict(zip(named, computed, strict=True))


def slices(entries: Tensor, dim: int) -> Tensor:
    """Entries as one row for each slice of a dimension."""
    return entries.transpose(0, dim).reshape(entries.shape[dim], -1)


def magnitude(weight: Tensor, dim: int) -> Tensor:
    """Σ w² over each slice: its squared ℓ₂ norm (Li et al. 2017 use ℓ₁)."""
    return slices(weight, dim).double().square().sum(1)


def taylor(weight: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """(Σ w ∂f/∂w)² over each slice: how much f moves, to first order, without it. Molchanov et al. (2019)."""
    return slices(weight * gradient, dim).double().sum(1).square()


def lamp(weight: Tensor) -> Tensor:
    """w² / Σ {v² : |v| ≥ |w|}, entry by entry: layers become comparable. Lee et al. (2021)."""
    flat = weight.double().square().flatten()
    order = flat.argsort(stable=True)
    left = flat[order].flip(0).cumsum(0).flip(0)
    scores = torch.empty_like(flat)
    scores[order] = flat[order] / left.clamp(min=torch.finfo(torch.float64).tiny)
    return scores.view_as(weight)


def n_of_m(scores: Tensor, n: int, m: int, dim: int = 1) -> Tensor:
    """Boolean: the ``n`` largest of every ``m`` in a row along a dimension; GPUs run 2 of 4 faster."""
    size = scores.shape[dim]
    if not 0 < n < m or size % m:
        raise TorchliftError(f"{n} of {m} needs 0 < n < m and a dimension that {m} divides; got {size}.")
    tiles = scores.transpose(dim, -1).unflatten(-1, (-1, m))
    keep = torch.zeros_like(tiles, dtype=torch.bool)
    keep.scatter_(-1, tiles.topk(n, -1).indices, True)
    return keep.flatten(-2).transpose(dim, -1)
