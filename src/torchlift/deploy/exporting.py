"""``export``: the model as ONNX, checked against itself."""

import contextlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.deploy.probing import Example, outputs, tensors
from torchlift.deploy.programs import batch_dimension
from torchlift.errors import TorchliftError


def export(
    model: nn.Module,
    example: Example,
    path: str | os.PathLike[str],
    *,
    tolerance: float = 1e-4,
    quantised: bool = False,
    opset: int | None = None,
) -> float:
    """Write the model as ONNX, for any batch size where it can be had; the largest error against torch.

    The file is run in ONNX Runtime on the example where that is installed, and refused if its outputs differ
    by more than ``tolerance`` (relative to the largest of them). ``quantised=True`` stores weights as int4 or
    int8 where their values allow it exactly; :func:`export_quantised` tells which. ``opset``: ONNX's version.
    """
    if quantised:
        from torchlift.deploy.quantised import export_quantised  # which exports, and rewrites what it gets

        return export_quantised(model, example, path, tolerance=tolerance).error
    if importlib.util.find_spec("onnxscript") is None:
        raise TorchliftError("export needs onnxscript: pip install 'torchlift[export]'.")
    training = model.training
    model.eval()
    try:
        convert(model, example, path, opset)
        expected = outputs(model, [example])
    finally:
        model.train(training)
    error = deviation(path, example, expected)
    if error > tolerance:
        raise TorchliftError(f"export: {path} differs from the model by {error:.1e} in ONNX Runtime.")
    return error


def convert(
    model: nn.Module, example: Example, path: str | os.PathLike[str], opset: int | None = None
) -> None:
    """torch's ONNX export; a fixed batch size where a free one cannot be had."""
    args = () if isinstance(example, Mapping) else example if isinstance(example, tuple) else (example,)
    kwargs = dict(example) if isinstance(example, Mapping) else {}
    for shapes in (batch_dimension(args, kwargs), None):
        try:
            with quiet():
                program = torch.onnx.export(
                    model,
                    args,
                    kwargs=kwargs,
                    dynamo=True,
                    dynamic_shapes=shapes,
                    verbose=False,
                    opset_version=opset,
                )
            assert program is not None
            program.save(os.fspath(path), external_data=False)
            return
        except Exception as failure:  # tracing a user's model may raise anything; the last one is told
            error: Exception = failure
    raise TorchliftError(f"export: the model cannot be traced ({type(error).__name__}: {error}).") from error


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without what torch's exporter says about operators of packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def deviation(path: str | os.PathLike[str], example: Example, expected: list[Tensor]) -> float:
    """The largest difference between the file and the model's outputs, relative to the largest output."""
    try:
        import onnxruntime
    except ImportError:
        return 0.0
    session: Any = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    given = {node.name: x.numpy() for node, x in zip(session.get_inputs(), tensors(example), strict=True)}
    found = [torch.from_numpy(result) for result in session.run(None, given)]
    scale = max(1.0, max(float(x.abs().max()) for x in expected))
    return max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True)) / scale
