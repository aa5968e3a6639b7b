"""A model as a list of tensor operations: runs without the classes it was written in."""

import operator
import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.deploy.codecs import PackedError
from torchlift.deploy.probing import Example
from torchlift.errors import TorchliftError

ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "neg",
    "getitem",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
)
PRIVATE = (
    "_softmax", "_log_softmax", "_to_copy", "_unsafe_view", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    "_native_batch_norm_legit_no_training", "_assert_tensor_metadata",
    "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
FORBIDDEN = ("from_file", "sym_constrain_range", "sym_constrain_range_for_size")


class Program(nn.Module):
    """Values are numbered: the inputs, the weights, then one per step (operation, args, kwargs).

    Only pure operations of ``torch.ops.aten`` and integer arithmetic on shapes may stand in a step.
    """

    names: list[str]
    weights: list[str]
    steps: list[tuple[str, Any, Any]]
    results: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the steps."""
        given = [*args, *(kwargs[name] for name in self.names[len(args) :])]
        values: list[Any] = [*given, *(getattr(self, name) for name in self.weights)]
        for name, arguments, keywords in self.steps:
            values.append(operation(name)(*filled(arguments, values), **filled(keywords, values)))
        return filled(self.results, values)


def filled(value: Any, values: list[Any]) -> Any:
    """Arguments with the references in them replaced by values."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        return (
            values[held["value"]]
            if list(held) == ["value"]
            else {k: filled(v, values) for k, v in held.items()}
        )
    if isinstance(value, list | tuple):
        return type(value)(filled(part, values) for part in cast("list[Any]", value))
    return value


def operation(name: str) -> Any:
    """The function a step names: pure and of aten, or plain arithmetic."""
    space, _, rest = name.partition(".")
    if space == "operator" and rest in ARITHMETIC:
        return getattr(operator, rest)
    packet, _, overload = rest.partition(".")
    public = not packet.startswith("_") or packet in PRIVATE
    if space == "aten" and public and packet not in FORBIDDEN and packet.isidentifier():
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if found is not None and not found._schema.is_mutable:
            return found
    raise PackedError(f"operation {name!r} is not allowed in a model file.")


def trace(model: nn.Module, example: Example) -> Program:
    """The model's computation in evaluation mode, for any batch size where it can be had."""
    args = () if isinstance(example, Mapping) else example if isinstance(example, tuple) else (example,)
    kwargs = dict(example) if isinstance(example, Mapping) else {}
    model = model.eval()
    error = None
    for dynamic in (True, False):
        shapes = batch_dimension(args, kwargs) if dynamic else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                exported = torch.export.export(model, args, kwargs, dynamic_shapes=shapes).run_decompositions(
                    {}
                )
            return program(exported, [f"input{k}" for k in range(len(args))] + list(kwargs))
        except Exception as failure:  # tracing a user's model may raise anything; the last one is told
            error = failure
    raise TorchliftError(f"save: the computation cannot be traced ({type(error).__name__}: {error}).")


def batch_dimension(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the first dimension of every input vary."""
    batch = torch.export.Dim("batch", min=1)

    def free(value: Any) -> Any:
        return {0: batch} if isinstance(value, Tensor) and value.ndim else None

    return (
        [free(value) for value in args]
        if not kwargs
        else {name: free(value) for name, value in kwargs.items()}
    )


def program(exported: Any, names: list[str]) -> Program:
    """An exported program of torch as one of ours."""
    made = Program()
    nn.Module.__init__(made)
    numbers: dict[Any, int] = {}
    signature = exported.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    places = [node for node in exported.graph.nodes if node.op == "placeholder"]
    inputs = [node for node in places if node.name not in held]
    weights = [node for node in places if node.name in held]
    for node in [*inputs, *weights]:
        numbers[node] = len(numbers)
    made.names, made.weights, made.steps = names, [node.name for node in weights], []
    for node in weights:
        tensor = {**exported.state_dict, **exported.constants}[held[node.name]]
        if isinstance(tensor, nn.Parameter):
            made.register_parameter(node.name, tensor)
        else:
            made.register_buffer(node.name, tensor)
    for node in exported.graph.nodes:
        if node.op == "call_function":
            numbers[node] = len(inputs) + len(weights) + len(made.steps)
            made.steps.append(
                (target_name(node.target), refer(list(node.args), numbers), refer(dict(node.kwargs), numbers))
            )
        elif node.op == "output":
            results = [r for r in refer(list(node.args[0]), numbers) if r is not None]
            made.results = results[0] if len(results) == 1 else tuple(results)
    return made


def target_name(target: Any) -> str:
    """A step's operation by name, if it is one that may be loaded again."""
    name = f"operator.{target.__name__}" if target.__module__ == "_operator" else str(target)
    operation(name)
    return name


def refer(value: Any, numbers: dict[Any, int]) -> Any:
    """Arguments with graph nodes replaced by references to values."""
    if isinstance(value, torch.fx.Node):
        return {"value": numbers[value]}
    if isinstance(value, list | tuple):
        return [refer(part, numbers) for part in value]
    if isinstance(value, dict):
        return {
            key: refer(part, numbers) for key, part in value.items() if key not in ("memory_format", "layout")
        }
    return value
