"""ONNX with integer weights: int4 or int8 and one scale per tensor or per channel, as their records say."""

import dataclasses
import importlib
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from torchlift.channels.example_inputs import Example, outputs, tensors
from torchlift.deploy.exporting import export
from torchlift.deploy.integer_weights import ChannelGrid, Recorded, grid_of, recorded_weights
from torchlift.errors import TorchliftError

Array = np.ndarray[Any, Any]

OPSET = 21
"""The first whose DequantizeLinear takes int4."""


@dataclasses.dataclass(frozen=True)
class Quantized:
    """What became of a model's weights in an ONNX file, checked in ONNX Runtime."""

    weights: dict[str, str]
    """Each weight of the file: "int4", "int8", or why it stayed float32."""
    error: float
    """The largest difference to torch's outputs, relative to the largest of them, in float arithmetic."""
    runtime_error: float
    """The same as the runtime runs the file by itself: it may round activations to meet int4 weights."""
    file_bytes: int
    float_bytes: int
    """Of the same model with float weights."""
    latency_ms: float | None
    """Median of a call in ONNX Runtime, and of the float file; None without it."""
    float_latency_ms: float | None

    @property
    def gained_nothing(self) -> dict[str, str]:
        """The weights that stayed as they were, and why."""
        return {name: kind for name, kind in self.weights.items() if not kind.startswith("int")}


def export_quantized(
    model: nn.Module, example: Example, path: str | os.PathLike[str], *, tolerance: float = 1e-4
) -> Quantized:
    """Write the model as ONNX with DequantizeLinear before every weight with a grid (``tl.stored``): step ·
    integer, with one step for all of them or one for each channel.

    The integers of p bits of SMOL's grid are odd and at most 2^p − 1 in size: grids up to 3 bits fit int4, up
    to 7 bits int8; other weights stay float32, and ``gained_nothing`` says why. Refused where the outputs in
    float arithmetic differ by more than ``tolerance``. Where a runtime has no integer kernel it unpacks such
    weights at every call: the file is smaller, the call need not be faster. ONNX Runtime has one for int4
    matrix products, which rounds their inputs: ``runtime_error`` is what that does.
    """
    plain = Path(path).with_suffix(".float.onnx")
    try:
        export(model, example, plain, opset=OPSET)
        weights = rewrite(plain, Path(path), recorded_weights(model))
        error, runtime_error = errors(model, example, path)
        if error > tolerance:
            raise TorchliftError(f"export: {path} differs from the model by {error:.1e} in ONNX Runtime.")
        sizes = [file.stat().st_size for file in (Path(path), plain)]
        times = [latency(file, example) for file in (path, plain)]
        return Quantized(weights, error, runtime_error, *sizes, *times)
    finally:
        plain.unlink(missing_ok=True)


def errors(model: nn.Module, example: Example, path: str | os.PathLike[str]) -> tuple[float, float]:
    """The file's error against torch with float arithmetic, and as the runtime runs it by itself."""
    training = model.training
    model.eval()
    try:
        expected = outputs(model, [example])
    finally:
        model.train(training)
    scale = max(1.0, max(float(x.abs().max()) for x in expected))

    def off(exact: bool) -> float:
        opened = session(path, exact)
        if opened is None:
            return 0.0
        found = opened.run(None, inputs(opened, example))
        return max(float(np.abs(a.numpy() - b).max()) for a, b in zip(expected, found, strict=True)) / scale

    return off(True), off(False)


def session(path: str | os.PathLike[str], exact: bool) -> Any | None:
    """The file in ONNX Runtime; ``exact`` keeps it from rounding activations where a weight is int4."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = runtime.SessionOptions()
    if exact:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def inputs(opened: Any, example: Example) -> dict[str, Any]:
    """The example under the names the file has for it."""
    return {node.name: x.numpy() for node, x in zip(opened.get_inputs(), tensors(example), strict=True)}


def rewrite(source: Path, target: Path, records: list[Recorded]) -> dict[str, str]:
    """The ONNX file with integer weights where they are exact; what became of each weight."""
    onnx: Any = importlib.import_module("onnx")
    graph_file = onnx.load(str(source))
    graph, kinds = graph_file.graph, dict[str, str]()
    for tensor in list(graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.ndim < 2:
            continue
        grid = grid_of(values, records)
        if isinstance(grid, str):
            kinds[tensor.name] = f"float32: {grid}"
            continue
        kinds[tensor.name] = "int4" if grid.narrow else "int8"
        graph.initializer.remove(tensor)
        replace(onnx, graph, tensor.name, grid)
    stale = [info for info in graph.value_info if info.name in kinds]
    for info in stale:
        graph.value_info.remove(info)
    onnx.checker.check_model(graph_file)
    onnx.save(graph_file, str(target))
    return kinds


def replace(onnx: Any, graph: Any, name: str, grid: ChannelGrid) -> None:
    """Integers, steps and DequantizeLinear in the place of a weight."""
    kind = onnx.TensorProto.INT4 if grid.narrow else onnx.TensorProto.INT8
    graph.initializer.append(integers(onnx, f"{name}.whole", grid.whole, kind))
    graph.initializer.append(onnx.numpy_helper.from_array(grid.step, f"{name}.step"))
    along = {} if grid.axis is None else {"axis": grid.axis}
    node = onnx.helper.make_node("DequantizeLinear", [f"{name}.whole", f"{name}.step"], [name], **along)
    graph.node.insert(0, node)


def integers(onnx: Any, name: str, whole: Array, kind: int) -> Any:
    """An initializer of int8, or of int4 with two to a byte."""
    flat = whole.ravel()
    if kind == onnx.TensorProto.INT8:
        return onnx.helper.make_tensor(name, kind, whole.shape, flat.astype(np.int8).tobytes(), raw=True)
    nibbles = (np.append(flat, 0) if flat.size % 2 else flat) & 15
    packed = (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8)
    return onnx.helper.make_tensor(name, kind, whole.shape, packed.tobytes(), raw=True)


def latency(path: str | os.PathLike[str], example: Example, repeats: int = 21) -> float | None:
    """Median milliseconds of a call in ONNX Runtime."""
    opened = session(path, exact=False)
    if opened is None:
        return None
    given, seconds = inputs(opened, example), list[float]()
    for _ in range(repeats + 3):
        start = time.perf_counter()
        opened.run(None, given)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds[3:])
