"""Weights as step · k with whole numbers −128 ≤ k ≤ 127: one step for all, or one for each channel."""

import dataclasses
from typing import Any

import numpy as np
import torch

from torchlift.packed import foreign

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class ChannelGrid:
    """A weight as step · k: one step, or one for each place along an axis."""

    step: Array
    whole: Array
    axis: int | None = None

    @property
    def narrow(self) -> bool:
        """Whether k fits four bits."""
        return int(self.whole.min()) >= -8 and int(self.whole.max()) <= 7


def grid_of(values: Array) -> ChannelGrid | None:
    """The grid of a weight: one step if that is enough, else one per output channel, which is axis 0 of
    kernels and axis 1 of matrices stored as in × out."""
    found = levels(values)
    if found is not None:
        return ChannelGrid(np.array(found[0], np.float32), found[1])
    for axis in (0, 1):
        rows = np.ascontiguousarray(np.moveaxis(values, axis, 0)) + np.float32(0)  # −0.0 is 0
        split = foreign.split(rows.reshape(-1).view("<u4"), torch.float32, len(rows), most=127)
        if split is not None:
            step, whole = split[0], split[1].reshape(rows.shape)
            return ChannelGrid(np.where(step > 0, step, np.float32(1)), np.moveaxis(whole, 0, axis), axis)
    return None


def levels(values: Array) -> tuple[float, Array] | None:
    """(step, k) with float32(step · k) = values exactly and small integers k; None where there are none."""
    distinct = np.unique(np.abs(values))
    distinct = distinct[distinct > 0]
    if not distinct.size or distinct.size > 256:
        return None
    for part in (1, 2, 3, 4, 5, 6, 7, 8):  # the least value need not be one step
        step = np.float32(distinct[0] / part)
        whole = np.round(distinct / step)
        if whole.max() <= 127 and np.array_equal(
            (step * whole.astype(np.float32)).astype(np.float32), distinct
        ):
            return float(step), np.round(values / step).astype(np.int64)
    return None
