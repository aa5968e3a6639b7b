"""Targets that are free where the activation behind a layer does not tell them apart.

A layer's output y goes on as f(y), f(v) = clamp(v, a, b) and then perhaps the largest of a window. Any z with
f(z) = f(y) is as good a target as y. Those with the same entry the largest make a box, l ≤ z ≤ u:

    y where it is passed on,   z ≤ a below the clamp,   z ≥ b above it,   z ≤ the window's largest elsewhere

The nearest target to what the layer gives now, ŷ, is clamp(ŷ, l, u). Solving for it again and again brings
‖f-distance‖² = Σ dist(ŷ, box)² down with every pass.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.channels.folding import norm_factors
from torchlift.flow.ops import Flow, Op
from torchlift.flow.trace import flow

CLAMPS = frozenset({"relu", "relu6", "hardtanh", "clamp", "clip"})
POOLING: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
BEYOND = 1e30


@dataclasses.dataclass(frozen=True)
class Freedom:
    """What is behind a layer: [norm], clamp to [low, high], [norm], [max pooling]."""

    low: float
    high: float
    before: str | None = None
    after: str | None = None
    window: tuple[int, ...] = ()

    def box(self, model: nn.Module, y: Tensor, channel_dim: int) -> tuple[Tensor, Tensor]:
        """(l, u) of a layer's output; channels lie along ``channel_dim``."""
        scale, shift = over_channels(model, self.before, y, channel_dim)
        v = y * scale + shift
        below, above = v <= self.low, v >= self.high
        lower = torch.where(below, -math.inf, torch.where(above, self.high, v))
        upper = torch.where(below, self.low, torch.where(above, math.inf, v))
        if self.window:
            sign, _ = over_channels(model, self.after, y, channel_dim)
            lower, upper = self.pooled(v, lower, upper, sign.sign())
        lower, upper = (lower - shift) / scale, (upper - shift) / scale
        return torch.minimum(lower, upper), torch.maximum(lower, upper)

    def pooled(self, v: Tensor, lower: Tensor, upper: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
        """The box where only the largest of sign · clamp(v) in each window is passed on."""
        seen = sign * v.clamp(self.low, self.high)
        largest, winner = POOLING[len(self.window)](seen, self.window, return_indices=True)
        wins = torch.zeros_like(seen, dtype=torch.bool).flatten(-len(self.window))
        wins = wins.scatter(-1, winner.flatten(-len(self.window)), True).view_as(seen)
        level = torch.full_like(seen, math.inf)  # beyond the last whole window nothing is passed on
        for dim, size in enumerate(self.window, seen.ndim - len(self.window)):
            largest = largest.repeat_interleave(size, dim)
        level[tuple(slice(size) for size in largest.shape)] = largest
        level = sign * level
        most = torch.where(level >= self.high, math.inf, level)  # of a loser, where the largest is chosen
        least = torch.where(level <= self.low, -math.inf, level)
        lost_lower = torch.where(sign < 0, least, -math.inf)
        lost_upper = torch.where(sign < 0, math.inf, most)
        return torch.where(wins, lower, lost_lower), torch.where(wins, upper, lost_upper)


def over_channels(model: nn.Module, norm: str | None, y: Tensor, channel_dim: int) -> tuple[Tensor, Tensor]:
    """A batch norm as scale and shift of y, broadcast along its channels; 1 and 0 without one."""
    if norm is None:
        return y.new_ones(()), y.new_zeros(())
    scale, shift = norm_factors(model, norm)
    shape = [1] * y.ndim
    shape[channel_dim] = -1
    return scale.detach().view(shape).to(y), shift.detach().view(shape).to(y)


def freedoms(model: nn.Module, inputs: Any) -> dict[str, Freedom]:
    """What is behind each layer that leaves its targets free, by module."""
    seen = flow(model, inputs)
    by_module: dict[str, Freedom] = {}
    ran: set[str] = set()
    for op in seen.of("layer"):
        if op.name in ran:
            by_module.pop(op.name, None)  # a layer that runs twice has two successors
        elif (own := freedom(seen, op)) is not None and invertible(model, own):
            by_module[op.name] = own
        ran.add(op.name)
    return by_module


def freedom(seen: Flow, layer: Op) -> Freedom | None:
    """What is behind one layer, if that is a clamp."""
    chain = list(behind(seen, layer))
    kinds = [op.kind for op in chain]
    before = chain.pop(0).name if kinds[:1] == ["norm"] else None
    bend = chain[0].bend if chain and chain[0].function in CLAMPS else None
    if bend is None:
        return None
    del chain[0]
    ends = bend(torch.tensor([-BEYOND, BEYOND], dtype=torch.float64)).tolist()
    low, high = (math.copysign(math.inf, end) if abs(end) == BEYOND else end for end in ends)
    after = chain.pop(0).name if chain and chain[0].kind == "norm" else None
    window = chain[0].window if chain else ()
    return Freedom(low, high, before, after if window else None, window)


def behind(seen: Flow, op: Op) -> Iterator[Op]:
    """The operations behind one, as long as each is the only one to take the value."""
    while not isinstance(successor := seen.next(op), str):
        yield successor
        op = successor


def invertible(model: nn.Module, own: Freedom) -> bool:
    """Whether no norm scales a channel by zero."""
    named = (name for name in (own.before, own.after) if name is not None)
    layers: list[Any] = [model.get_submodule(name) for name in named]
    return all(layer.weight is None or bool((layer.weight != 0).all()) for layer in layers)
