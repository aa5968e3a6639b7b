"""A float ONNX graph in the form that integer kernels take.

Zero padding stands inside the convolutions, the mean of a map is pooling, and maps one entry wide lie down:
kernels copy what they read piece by piece, and the pieces of a column are single entries, that of a row is
all of it. A convolution over 512 entries of one channel takes a fifth of the time so.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torchlift.deploy.integer_graph import OnnxGraph, attribute

OnnxNode = Any
"""An ``onnx.NodeProto``."""

WINDOWS = {"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"}
"""Operations on maps with attributes for each dimension."""
ENTRYWISE = {"Relu", "Clip", "LeakyRelu", "Sigmoid", "Add", "Mul", "BatchNormalization"}
"""Operations to which the order of a map's entries is the same."""


def prepare(model: Any) -> OnnxGraph:
    """The same function in the form that integer kernels take, its constants as initializers."""
    model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        value = attribute(node, "value", None)
        if value is not None:
            value.name = node.output[0]
            graph.initializer.append(value)
            graph.node.remove(node)
    whole = OnnxGraph(model)
    shapes = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in [*graph.value_info, *graph.input, *graph.output]
    }
    for node in list(graph.node):
        if node.op_type == "Pad":
            merge_padding(whole, node)
        elif node.op_type == "ReduceMean" and len(shapes.get(node.input[0], [])) == 4:
            pool_mean(whole, node)
    columns = {name for name, shape in shapes.items() if len(shape) == 4 and shape[3] == 1}
    return lay_down(OnnxGraph(model), columns)


def merge_padding(whole: OnnxGraph, node: OnnxNode) -> None:
    """Zeros around a map become the padding of the only convolution that reads it."""
    reader, pads = whole.only_reader(node.output[0]), whole.constants.get(node.input[1])
    value = whole.constants.get(node.input[2], np.ones(1)) if len(node.input) > 2 and node.input[2] else 0
    if reader is None or reader.op_type != "Conv" or pads is None or len(node.input) > 3 or np.any(value):
        return
    if attribute(node, "mode", b"constant") != b"constant" or attribute(
        reader, "auto_pad", b"NOTSET"
    ) not in (
        b"NOTSET",
        b"VALID",
    ):
        return
    half = len(pads) // 2
    if pads.min() < 0 or pads[:2].any() or pads[half : half + 2].any():
        return
    own = attribute(reader, "pads", [0] * (2 * (half - 2)))
    total = [int(a + b) for a, b in zip(own, [*pads[2:half], *pads[half + 2 :]], strict=True)]
    for old in [a for a in reader.attribute if a.name in ("pads", "auto_pad")]:
        reader.attribute.remove(old)
    reader.attribute.append(helper.make_attribute("pads", total))
    reader.input[0] = node.input[0]
    whole.model.graph.node.remove(node)


def pool_mean(whole: OnnxGraph, node: OnnxNode) -> None:
    """The mean over both dimensions of a map is GlobalAveragePool, where these dimensions stay."""
    axes = whole.constants.get(node.input[1]) if len(node.input) > 1 else None
    if axes is None or sorted(int(a) % 4 for a in axes.ravel()) != [2, 3]:
        return
    if not attribute(node, "keepdims", 1):
        return
    node.op_type = "GlobalAveragePool"
    del node.input[1:]
    del node.attribute[:]


def lay_down(whole: OnnxGraph, columns: Collection[str]) -> OnnxGraph:
    """Operations on maps one entry wide as operations on maps one entry high."""
    nodes = [node for node in whole.nodes if works_on(whole, node, columns)]
    if not any(node.op_type == "Conv" and max(attribute(node, "kernel_shape", [1])) > 1 for node in nodes):
        return whole
    names = {node.output[0] for node in nodes}
    read = {name for node in nodes for name in whole.variables(node)}
    outside = {name for node in whole.nodes if node.output[0] not in names for name in node.input}
    both = (names & (outside | whole.outputs)) | (read - names)
    """Tensors that are needed standing, too."""
    lying = {name: f"{name}.lying" for name in both}
    graph = whole.model.graph
    for node in nodes:
        swap_dimensions(node)
        node.input[:] = [lying.get(name, name) for name in node.input]
    weights = {node.input[1] for node in nodes if node.op_type == "Conv"}
    for tensor in graph.initializer:
        if tensor.name in weights:
            values = np.ascontiguousarray(whole.constants[tensor.name].swapaxes(2, 3))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    written = [turned(name, lying[name]) for name in both if name in whole.inputs]
    for node in whole.nodes:
        written.append(node)
        own = [name for name in node.output if name in both]
        if own and node.output[0] in names:
            node.output[0] = lying[own[0]]
            written.append(turned(lying[own[0]], own[0]))
        else:
            written += [turned(name, lying[name]) for name in own]
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in written]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(copied)
    return OnnxGraph(whole.model)


def works_on(whole: OnnxGraph, node: OnnxNode, columns: Collection[str]) -> bool:
    """Whether an operation reads and makes nothing but maps one entry wide, and its constants do not care
    which way they lie (a convolution's weight is its own and turned with it)."""
    if node.op_type not in WINDOWS | ENTRYWISE or len([name for name in node.output if name]) != 1:
        return False
    if not {*whole.variables(node), node.output[0]} <= set(columns):
        return False
    constants = [(name, whole.constants[name]) for name in node.input if name in whole.constants]
    if node.op_type == "Conv":
        return len(constants) == len(node.input) - 1 and len(whole.readers[node.input[1]]) == 1
    return node.op_type == "BatchNormalization" or all(
        value.size == 1 or value.shape[-2:] == (1, 1) for _, value in constants
    )


def swap_dimensions(node: OnnxNode) -> None:
    """Exchange height and width in what an operation says of each."""
    for one in node.attribute:
        if one.name in ("kernel_shape", "strides", "dilations"):
            one.ints[:] = one.ints[::-1]
        elif one.name == "pads":
            one.ints[:] = [one.ints[i] for i in (1, 0, 3, 2)]


def turned(name: str, output: str) -> OnnxNode:
    """A map with height and width exchanged."""
    return helper.make_node("Transpose", [name], [output], name=f"turn {output}", perm=[0, 1, 3, 2])
