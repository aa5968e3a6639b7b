"""ONNX that computes with integers: int8 weights and activations, measured beside the float file."""

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import Example, changed, tensors
from torchlift.channels.folding import fold_norms
from torchlift.core.stored import without_records
from torchlift.deploy.exporting import Exported, convert_onnx, minimal
from torchlift.deploy.integer_weights import recorded_weights
from torchlift.errors import DataError, TorchliftError
from torchlift.loss import call, evaluating

Array = np.ndarray[Any, Any]

OPSET = 21
SAMPLES, BATCH = 8, 32
"""The fewest calibration samples, and how many run at once."""


def export_integer(
    model: nn.Module, example: Example, path: str | os.PathLike[str], calibration: Any, everything: bool
) -> Exported:
    """Write the model with integer arithmetic where ONNX Runtime is faster with it, or, for ``everything``,
    wherever it has a kernel."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise TorchliftError(f"export needs {package}: pip install 'torchlift[export]'.")
    from torchlift.deploy.integer_file import File  # which import onnx
    from torchlift.deploy.integer_graph import IntegerChoice

    batches = calibration_batches(example, calibration)
    with evaluating(model):
        folded = ranges_for_rounding(fold_norms(model, first_samples(batches, 2)))
        records = recorded_weights(folded)
        scratch = Path(path).with_suffix(".float.onnx")
        try:
            with without_records(folded):
                convert_onnx(folded, minimal(first_samples(batches, 2)), scratch, OPSET)
            file = File.open(scratch, records)
        finally:
            scratch.unlink(missing_ok=True)
        file.calibrate(batches)
        expected = [outputs_of(model, batch) for batch in batches]
    choice, reasons = (IntegerChoice(), {}) if everything else file.best(expected, example)
    return file.deliver(path, choice, reasons, expected, example)


def outputs_of(model: nn.Module, batch: Example) -> list[Array]:
    """The floating-point outputs of a model."""
    with torch.no_grad():
        outputs = tensors(call(model, batch))
        return [t.float().cpu().numpy() for t in outputs if t.is_floating_point()]


def calibration_batches(example: Example, calibration: Any) -> list[Example]:
    """The calibration data in batches of the example's form: enough, finite, of its shapes."""
    if calibration is None:
        raise DataError(
            "export(integer=True) needs calibration data: pass calibration=x, 64 to 1,024 inputs."
        )
    batches = [piece for batch in in_batches(calibration, example) for piece in in_pieces(batch)]
    count = sum(sample_count(batch) for batch in batches)
    if count < SAMPLES:
        raise DataError(
            f"export needs {SAMPLES} calibration samples or more, got {count}: 64 to 1,024 are best."
        )
    for batch in batches:
        if any(not bool(torch.isfinite(t).all()) for t in tensors(batch) if t.is_floating_point()):
            raise DataError("export: the calibration data hold values that are not finite.")
    shapes = [tuple(t.shape[1:]) for t in tensors(example)]
    for batch in batches:
        own = [tuple(t.shape[1:]) for t in tensors(batch)]
        if own != shapes:
            raise DataError(
                f"export: calibration samples of shape {own}, an example of {shapes}: pass inputs like it."
            )
    return batches


def in_batches(calibration: Any, example: Example) -> Iterator[Example]:
    """Batches of inputs, from one example with many samples or anything that yields batches."""
    several = isinstance(calibration, list) and isinstance(example, tuple | list)
    if isinstance(calibration, Tensor | Mapping | np.ndarray | tuple) or (
        several and all(isinstance(entry, Tensor) for entry in calibration)
    ):
        yield fitted(calibration, example)
    elif hasattr(calibration, "__iter__"):
        for batch in calibration:
            yield fitted(batch, example)
    else:
        raise DataError(
            f"export: calibration is of type {type(calibration).__name__}: pass a tensor, a dict or batches."
        )


def fitted(batch: Any, example: Example) -> Example:
    """What the model takes of a batch: labels that the example has not are left out."""
    if isinstance(batch, np.ndarray):
        batch = torch.from_numpy(batch)
    if isinstance(example, Mapping) and isinstance(batch, Mapping):
        missing = [name for name in example if name not in batch]
        if missing:
            raise DataError(f"export: the calibration data have no {missing[0]!r}, which the example has.")
        return {name: batch[name] for name in example}
    if isinstance(example, tuple | list):
        whole = batch if isinstance(batch, tuple | list) else (batch,)
        return tuple(whole[: len(example)])
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def sample_count(batch: Example) -> int:
    """How many samples a batch has."""
    return max((len(t) for t in tensors(batch) if t.ndim), default=0)


def in_pieces(batch: Example) -> Iterator[Example]:
    """A batch, BATCH samples at a time."""
    count = sample_count(batch)
    for start in range(0, count, BATCH):
        yield changed(batch, lambda t, a=start: t[a : a + BATCH] if t.ndim and len(t) == count else t)


def first_samples(batches: Sequence[Example], count: int) -> Example:
    """The first samples."""
    return changed(batches[0], lambda t: t[:count] if t.ndim else t)


def ranges_for_rounding(model: nn.Module) -> nn.Module:
    """Activations that were trained to be rounded (``activations=True``) without their rounding, which is the
    file's: to eight bits of the same range."""
    for name, module in list(model.named_modules()):
        ranged: Any = getattr(module, "ranged", None)
        if ranged is not None and "bits" in dict(module.named_buffers()):
            high = float(torch.as_tensor(ranged.low + ranged.width()).detach())
            rectified = isinstance(ranged.inner, nn.ReLU | nn.ReLU6)
            model.set_submodule(name, nn.Hardtanh(0.0, high) if rectified else ranged.inner)
    return model
