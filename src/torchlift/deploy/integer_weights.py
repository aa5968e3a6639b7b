"""The integers and steps of an exported file's weights, from the records of the model's."""

import dataclasses
from typing import Any

import numpy as np
from torch import nn

from torchlift.core import Stored, stored

Array = np.ndarray[Any, Any]

LOWEST, HIGHEST = -128, 127
"""What int8 holds."""


@dataclasses.dataclass(frozen=True)
class ChannelGrid:
    """A weight as step · k with −128 ≤ k ≤ 127: one step, or one for each place along an axis."""

    step: Array
    whole: Array
    axis: int | None = None


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A weight of the model and its grid, steps positive and without a power of two that all levels share."""

    values: Array
    levels: Array
    step: Array
    """As many dimensions as the weight, each 1 or the weight's."""

    @classmethod
    def of(cls, weight: nn.Parameter, record: Stored) -> "Recorded | None":
        """None where a weight has no grid, or steps of blocks."""
        if record.step is None or record.levels is None:
            return None
        step, levels = record.step.cpu().numpy(), record.levels.cpu().numpy().astype(np.int64)
        if any(n not in (1, wide) for n, wide in zip(step.shape, levels.shape, strict=True)):
            return None
        shared = np.bitwise_or.reduce(np.abs(levels), axis=None)
        power = int(shared & -shared) or 1
        sign = np.where(step < 0, -1, 1)
        return cls(weight.detach().cpu().numpy(), sign * levels // power, np.abs(step) * np.float32(power))


def recorded_weights(model: nn.Module) -> list[Recorded]:
    """The grids of a model's weights."""
    grids = (Recorded.of(model.get_parameter(name), record) for name, record in stored(model).items())
    return [one for one in grids if one is not None]


def grid_of(values: Array, records: list[Recorded]) -> ChannelGrid | str:
    """The grid of a weight of the file, or why it has none.

    It is a weight of the model as it is, its last two dimensions exchanged, or, with one step for all of it,
    in any order: the file has the gates of an LSTM in an order of its own.
    """
    same = tuple(range(values.ndim))
    for record in records:
        for order in dict.fromkeys((same, (*same[:-2], *same[:-3:-1]))):
            if record.values.ndim == values.ndim and np.array_equal(record.values.transpose(order), values):
                return in_channels(record.levels.transpose(order), record.step.transpose(order))
        if record.step.size == 1 and same_values(record.values, values):
            step = record.step.reshape([1] * values.ndim)
            return in_channels(np.rint(values / step).astype(np.int64), step)
    return "it has no grid (tl.stored): quantize it first, by recipes.Smol or lifts.LearnedStep"


def same_values(one: Array, other: Array) -> bool:
    """Whether two arrays have the same values in some order."""
    return one.size == other.size and np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))


def in_channels(levels: Array, step: Array) -> ChannelGrid | str:
    """One step, or one along the only axis that has several."""
    if levels.min() < LOWEST or levels.max() > HIGHEST:
        return f"its levels, {levels.min()} to {levels.max()}, do not fit eight bits"
    axes = [axis for axis, size in enumerate(step.shape) if size > 1]
    if len(axes) > 1:
        return "its steps are those of blocks"
    step = np.where(step > 0, step, np.float32(1)).astype(np.float32)  # a row of zeros
    return ChannelGrid(step.reshape(-1) if axes else step.reshape(()), levels, axes[0] if axes else None)
