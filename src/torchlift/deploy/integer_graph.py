"""A float ONNX graph with integers between its layers: QuantizeLinear and DequantizeLinear around every
operation that ONNX Runtime has an integer kernel for.

    x ≈ s_x (q_x − z_x),  q_x in 0 … 255,     s_x and z_x of the tensor
    W ≈ s_w k_w,          k_w in −127 … 127,  s_w of each output channel
    b ≈ s_x s_w k_b,      k_b of 32 bits

Processors without VNNI add two products q_x k_w in 16 bits, and what does not fit is cut off: the file would
compute something else there. So the two largest k_w of one sign of an output channel sum to at most 128,
whatever two a kernel pairs: 255 · 128 < 2¹⁵. Trained levels for which that fails are stored as uint8 with the
zero 128, which kernels multiply in full.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torchlift.deploy.integer_weights import ChannelGrid, Recorded, grid_of

Array = np.ndarray[Any, Any]
OnnxNode = Any
"""An ``onnx.NodeProto``."""

JOINS = {
    "Add": "sum",
    "Mul": "gate",
    "Concat": "join",
    "GlobalAveragePool": "average",
    "AveragePool": "average",
    "Sigmoid": "sigmoid",
    "LeakyRelu": "leaky",
}
"""Operations with an integer kernel where all that they read is integers already, by their class."""

PASSES = {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"}
"""Operations that move integers without changing them."""

PAIR = 128
"""The most that two levels of one sign may sum to."""

LAYERS = ("convolution", "depthwise", "linear")
"""The classes with a weight."""


@dataclasses.dataclass(frozen=True)
class ActivationGrid:
    """The grid of an activation."""

    scale: np.float32
    zero: np.uint8

    @classmethod
    def of(cls, low: float, high: float) -> "ActivationGrid":
        """The grid of 256 values from ``low`` to ``high``; zero is among them."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32((high - low) / 255)
        if not scale > 0:
            return cls(np.float32(1), np.uint8(0))
        return cls(scale, np.uint8(np.clip(np.rint(-low / scale), 0, 255)))


class OnnxGraph:
    """The nodes of a float model, and who makes and reads what."""

    def __init__(self, model: Any) -> None:
        self.model = model
        graph = model.graph
        self.nodes: list[OnnxNode] = list(graph.node)
        self.constants: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.inputs = {info.name for info in graph.input}
        self.outputs = {info.name for info in graph.output}
        self.maker: dict[str, OnnxNode] = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[OnnxNode]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def only_reader(self, name: str) -> OnnxNode | None:
        """The one node that reads a tensor, if it is the only thing that does."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def variables(self, node: OnnxNode) -> list[str]:
        """The activations among a node's inputs; for those that move numbers, the first input alone."""
        names = node.input[:1] if node.op_type in PASSES else node.input
        return [name for name in names if name and name not in self.constants]

    def kind(self, node: OnnxNode) -> str | None:
        """The class of an operation with an integer kernel; None for the others."""
        kind = node.op_type
        if kind == "Conv" and self.has_weight(node, 3):
            weight, groups = self.constants[node.input[1]], attribute(node, "group", 1)
            return "depthwise" if groups > 1 and weight.shape[1] == 1 else "convolution"
        if kind == "Gemm" and self.has_weight(node, 2) and plain_gemm(node, self.constants):
            return "linear"
        if kind == "MatMul":
            if self.has_weight(node, 2):
                return "linear"
            return None if any(name in self.constants for name in node.input) else "product"
        if kind in JOINS and all(
            name not in self.constants or self.constants[name].dtype == np.float32 for name in node.input
        ):
            return JOINS[kind]
        return "pass" if kind in PASSES else None

    def has_weight(self, node: OnnxNode, ndim: int) -> bool:
        """Whether its second input is a constant float weight of at least so many dimensions, and a third
        one, if any, constant too."""
        weight = self.constants.get(node.input[1])
        rest = all(name in self.constants for name in node.input[2:] if name)
        return (
            node.input[0] not in self.constants
            and weight is not None
            and weight.dtype == np.float32
            and (weight.ndim >= ndim if ndim > 2 else weight.ndim == 2)
            and rest
        )


def attribute(node: OnnxNode, name: str, default: Any) -> Any:
    """An attribute of a node."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def plain_gemm(node: OnnxNode, constants: Mapping[str, Array]) -> bool:
    """x W + b with no factors."""
    factors = attribute(node, "alpha", 1.0) == 1.0 == attribute(node, "beta", 1.0)
    bias = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(1)
    return factors and not attribute(node, "transA", 0) and bias.ndim == 1


@dataclasses.dataclass(frozen=True)
class IntegerChoice:
    """Which operations are integers: not those of these classes, nor these nodes (by their first output)."""

    classes: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    one_step: frozenset[str] = frozenset()
    """Classes of layers with one step for each weight instead of one for each of its output channels."""

    def without(self, *, classes: Iterable[str] = (), nodes: Iterable[str] = ()) -> "IntegerChoice":
        """More of them left in float."""
        return dataclasses.replace(self, classes=self.classes | set(classes), nodes=self.nodes | set(nodes))


@dataclasses.dataclass(frozen=True)
class NodePlan:
    """What becomes of each node."""

    integer: dict[str, str]
    """The class of each operation on integers, by its first output."""
    folded: dict[str, str]
    """Outputs of integer operations → outputs of the ReLU or Clip after them, which rounding includes."""
    tensors: dict[str, str]
    """The activations on a grid → the tensor whose grid it is."""
    one_step: frozenset[str] = frozenset()
    """See :class:`IntegerChoice`."""


def planned(whole: OnnxGraph, choice: IntegerChoice) -> NodePlan:
    """All operations with an integer kernel that are not left in float."""
    anchors = {*LAYERS, "product"}
    kinds = {
        node.output[0]: kind
        for node in whole.nodes
        if (kind := whole.kind(node)) and kind not in choice.classes and node.output[0] not in choice.nodes
    }
    integer = {name: kind for name, kind in kinds.items() if kind in anchors}
    read = {name for node in whole.nodes if node.output[0] in integer for name in whole.variables(node)}
    tensors = {name: name for name in read}
    folded: dict[str, str] = {}
    for node in whole.nodes:
        name = node.output[0]
        if kinds.get(name) and name not in integer:
            own = whole.variables(node)
            if own and all(one in tensors and integer_output(whole, one, integer, folded) for one in own):
                integer[name] = kinds[name]
        kind = integer.get(name)
        if kind is None:
            continue
        after = name
        if kind != "pass" and (clip := clipped(whole, name)) is not None:
            after = folded[name] = clip
        if kind == "pass":
            tensors[name] = tensors[whole.variables(node)[0]]
        elif kind not in ("linear", "product") or after in read:
            tensors[after] = after
        else:
            folded.pop(name, None)
    return trimmed(whole, NodePlan(integer, folded, tensors, choice.one_step))


def integer_output(
    whole: OnnxGraph, name: str, integer: Mapping[str, str], folded: Mapping[str, str]
) -> bool:
    """Whether a tensor is the output of an integer operation (or of the ReLU that it includes)."""
    return name in integer or name in folded.values() or name in whole.inputs


def trimmed(whole: OnnxGraph, plan: NodePlan) -> NodePlan:
    """Without moves of integers that only float operations read."""
    integer, tensors = dict(plan.integer), dict(plan.tensors)
    for node in reversed(whole.nodes):
        name = node.output[0]
        if integer.get(name) == "pass" and not any(
            reader.output[0] in integer for reader in whole.readers.get(name, [])
        ):
            del integer[name], tensors[name]
    return dataclasses.replace(plan, integer=integer, tensors=tensors)


def clipped(whole: OnnxGraph, name: str) -> str | None:
    """The output of the ReLU or Clip that alone reads a tensor and has zero among its values."""
    reader = whole.only_reader(name)
    if reader is None or reader.op_type not in ("Relu", "Clip"):
        return None
    if reader.op_type == "Clip" and any(one and one not in whole.constants for one in reader.input[1:]):
        return None
    return reader.output[0]


def integer_model(
    whole: OnnxGraph, plan: NodePlan, ranges: Mapping[str, ActivationGrid], records: list[Recorded]
) -> tuple[Any, dict[str, str]]:
    """The model with integers, and what became of each weight."""
    writer = Writer(whole, plan, ranges, records)
    for name in whole.inputs & set(plan.tensors):
        writer.quantize(name)
    for node in whole.nodes:
        writer.add(node)
    model = onnx.ModelProto()
    model.CopyFrom(whole.model)
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(writer.nodes)
    used = {name for node in writer.nodes for name in node.input} | whole.outputs
    kept = [t for t in [*whole.model.graph.initializer, *writer.initializers.values()] if t.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.checker.check_model(model)
    return model, writer.kinds


class Writer:
    """The nodes of the integer model, one after the other."""

    def __init__(
        self, whole: OnnxGraph, plan: NodePlan, ranges: Mapping[str, ActivationGrid], records: list[Recorded]
    ) -> None:
        self.whole, self.plan, self.ranges, self.records = whole, plan, ranges, records
        self.nodes: list[OnnxNode] = []
        self.initializers: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.dequantized: dict[str, str] = {}
        """The tensors that have integers, and their values on the grid."""

    def add(self, node: OnnxNode) -> None:
        """A node as it is, or with integers around it."""
        name = node.output[0]
        if name in self.plan.folded.values():
            return
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        kind = self.plan.integer.get(name)
        for position, one in enumerate(node.input):
            if one in self.dequantized and (kind is not None or self.fused(one)):
                twin.input[position] = self.dequantized[one]
        if kind in LAYERS:
            twin.name = name  # layers are timed by it
            self.weigh(node, twin)
        elif kind is not None and kind != "pass":
            self.constant_inputs(twin)
        self.nodes.append(twin)
        if name in self.plan.folded:
            name = twin.output[0] = self.plan.folded[name]
        if name in self.plan.tensors:
            self.quantize(name)

    def fused(self, name: str) -> bool:
        """Whether an integer operation makes this tensor: what reads it reads the rounded values."""
        return name in self.plan.integer or name in self.plan.folded.values()

    def quantize(self, name: str) -> None:
        """Integers of a tensor, and their values."""
        grid = self.ranges[self.plan.tensors[name]]
        scale, zero = f"{self.plan.tensors[name]}.scale", f"{self.plan.tensors[name]}.zero"
        self.constant(scale, np.asarray(grid.scale))
        self.constant(zero, np.asarray(grid.zero))
        exact = name in self.whole.outputs and self.fused(name)
        source = f"{name}.float" if exact else name
        if exact:  # an output keeps its name
            self.nodes[-1].output[0] = source
        target = name if exact else f"{name}.grid"
        self.nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [f"{name}.integer"]))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{name}.integer", scale, zero], [target]))
        self.dequantized[name] = target

    def constant(self, name: str, value: Array) -> str:
        """An initializer, once."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(
                np.ascontiguousarray(value).reshape(value.shape), name
            )
        return name

    def constant_inputs(self, twin: OnnxNode) -> None:
        """Constants that an operation on integers reads are integers too."""
        for position, name in enumerate(twin.input):
            if name in self.whole.constants:
                values = self.whole.constants[name]
                grid = ActivationGrid.of(float(values.min()), float(values.max()))
                whole = np.clip(np.rint(values / grid.scale) + grid.zero, 0, 255).astype(np.uint8)
                inputs = [
                    self.constant(f"{name}.integer", whole),
                    self.constant(f"{name}.scale", np.asarray(grid.scale)),
                    self.constant(f"{name}.zero", np.asarray(grid.zero)),
                ]
                self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}.grid"]))
                twin.input[position] = f"{name}.grid"

    def weigh(self, node: OnnxNode, twin: OnnxNode) -> None:
        """The weight of a layer as int8, its bias as int32."""
        name = node.input[1]
        values = self.whole.constants[name]
        axis = 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1
        input_step = self.ranges[self.plan.tensors[node.input[0]]].scale
        bias = self.whole.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else None
        one_step = self.plan.integer[node.output[0]] in self.plan.one_step
        step, levels, origin = weight_grid(values, axis, self.records, input_step, bias, one_step)
        stem = f"{node.output[0]}.{name}"
        inputs = [
            self.constant(f"{stem}.levels", levels),
            self.constant(f"{stem}.step", step),
            self.constant(
                f"{stem}.zero", np.full(step.shape, 128 * (levels.dtype == np.uint8), levels.dtype)
            ),
        ]
        attributes: dict[str, Any] = {"axis": axis} if step.ndim else {}
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{stem}.grid"], **attributes))
        twin.input[1] = f"{stem}.grid"
        self.kinds[name] = origin
        if bias is not None:
            unit = (input_step * step).astype(np.float32)
            whole = np.rint(bias.astype(np.float64) / unit).astype(np.int32)
            inputs = [
                self.constant(f"{stem}.bias", whole),
                self.constant(f"{stem}.bias_step", unit),
                self.constant(f"{stem}.bias_zero", np.zeros(step.shape, np.int32)),
            ]
            attributes = {"axis": 0} if step.ndim else {}
            self.nodes.append(
                helper.make_node("DequantizeLinear", inputs, [f"{stem}.bias_grid"], **attributes)
            )
            twin.input[2] = f"{stem}.bias_grid"


def weight_grid(
    values: Array,
    axis: int,
    records: list[Recorded],
    input_step: np.float32,
    bias: Array | None,
    one_step: bool,
) -> tuple[Array, Array, str]:
    """Steps, levels, and where they are from: trained, or the largest entries of each output channel (of all
    of them with ``one_step``)."""
    size = values.shape[axis]
    grid = grid_of(values, records)
    if isinstance(grid, ChannelGrid) and (grid.axis in (None, axis)):
        several = grid.axis is not None or not one_step
        step = np.broadcast_to(grid.step, (size,) if several else ()).astype(np.float32)
        if bias is None or np.abs(bias / (input_step * step)).max(initial=0) < 2**30:
            if largest_pair(channels(grid.whole, axis)).max(initial=0) <= PAIR:
                return step, grid.whole.astype(np.int8), "int8, levels as trained"
            return step, (grid.whole + 128).astype(np.uint8), "uint8, levels as trained"
    rows = channels(values, axis)
    # rounding adds at most one to a sum of two
    step = np.maximum(np.abs(rows).max(1, initial=0) / 127, largest_pair(rows) / (PAIR - 1))
    if bias is not None:  # which must fit 32 bits
        step = np.maximum(step, np.abs(bias) / (input_step * 2.0**30))
    if one_step:
        step = np.asarray(step.max(initial=0))
    step = np.where(step > 0, step, 1).astype(np.float32)
    spread = step.reshape([-1 if dim == axis else 1 for dim in range(values.ndim)]) if step.ndim else step
    return step, np.clip(np.rint(values / spread), -127, 127).astype(np.int8), "int8"


def channels(values: Array, axis: int) -> Array:
    """A row for each output channel."""
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def largest_pair(rows: Array) -> Array:
    """The largest sum of two entries of one sign in each row, without the sign."""
    padded = np.pad(rows.astype(np.float64), ((0, 0), (0, 2)))
    order = np.partition(padded, (1, -2), axis=1)
    return np.maximum(order[:, -2:].sum(1), -order[:, :2].sum(1))


def layers_of(whole: OnnxGraph, names: Collection[str]) -> list[str]:
    """The layers with a weight among these, in the order they run."""
    return [n.output[0] for n in whole.nodes if n.output[0] in names and whole.kind(n) in LAYERS]
