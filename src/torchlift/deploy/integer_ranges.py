"""Ranges of activations: what a float file's tensors are on calibration data, rounded with the least error.

min over a in (0, 1] of Σ (x − Q(x; a·low, a·high))², over a histogram of x
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from torchlift.deploy.integer_graph import ActivationGrid
from torchlift.errors import DataError

Array = np.ndarray[Any, Any]
ReadOnlyFeed = Mapping[str, Array]
BINS = 2048
SHRINKS = np.linspace(0.25, 1.0, 31)


@dataclasses.dataclass(frozen=True)
class Extent:
    """The least and the largest value of a tensor."""

    low: float
    high: float


def observed(
    model: Any, names: list[str], open_session: Callable[[Any], Any], feeds: Sequence[ReadOnlyFeed]
) -> dict[str, ActivationGrid]:
    """The grid of each named tensor of a float model."""
    with_outputs = onnx.ModelProto()
    with_outputs.CopyFrom(model)
    outside = {info.name for info in [*model.graph.output, *model.graph.input]}
    inside = [name for name in names if name not in outside]
    for name in inside:
        with_outputs.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = open_session(with_outputs)
    outputs = [one.name for one in session.get_outputs()]

    def values() -> Iterable[tuple[str, Array]]:
        for feed in feeds:
            tensors = dict(zip(outputs, session.run(outputs, dict(feed)), strict=True)) | dict(feed)
            yield from ((name, tensors[name]) for name in names)

    extents: dict[str, Extent] = {}
    for name, x in values():
        if not np.isfinite(x).all():
            raise DataError(
                f"export: the calibration data give values that are not finite inside the model ({name})."
            )
        old = extents.get(name, Extent(0.0, 0.0))
        extents[name] = Extent(min(old.low, float(x.min(initial=0))), max(old.high, float(x.max(initial=0))))
    counts = {name: np.zeros(BINS) for name in names}
    for name, x in values():
        one = extents[name]
        if one.high > one.low:
            counts[name] += np.histogram(x, BINS, (one.low, one.high))[0]
    return {name: least_squares(extents[name], counts[name]) for name in names}


def least_squares(extent: Extent, counts: Array) -> ActivationGrid:
    """The range, shrunk as much as makes the squared error of rounding least."""
    if not extent.high > extent.low:
        return ActivationGrid.of(0.0, 0.0)
    width = (extent.high - extent.low) / BINS
    centers = extent.low + width * (np.arange(BINS) + 0.5)
    low, high = SHRINKS[:, None] * extent.low, SHRINKS[:, None] * extent.high
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    whole = np.clip(np.rint(centers / scale) + zero, 0, 255)
    # a center stands for a bin: inside the range it is off by scale² / 12 whatever the bin is
    off = np.maximum(np.abs(scale * (whole - zero) - centers), 0)
    inside = (centers >= low) & (centers <= high)
    errors = np.where(inside, scale**2 / 12, off**2) @ counts
    best = SHRINKS[int(np.argmin(errors))]
    return ActivationGrid.of(best * extent.low, best * extent.high)
