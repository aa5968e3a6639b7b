"""From a model to its program: torch's exporter, in evaluation mode, and back to the modes the model was
in."""

import contextlib
import warnings
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import Example
from torchlift.errors import TorchliftError
from torchlift.packed.operations import CHECKS, operation
from torchlift.packed.programs import Program


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Evaluation mode for a while; then every module is in its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def arguments_of(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of an example."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return tuple(example) if isinstance(example, tuple | list) else (example,), {}


def batch_dimension(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the first dimension of every input vary."""
    batch = torch.export.Dim("batch", min=1)

    def free(value: Any) -> Any:
        return {0: batch} if isinstance(value, Tensor) and value.ndim else None

    if kwargs:
        return {name: free(value) for name, value in kwargs.items()}
    return [free(value) for value in args]


def exported_program(
    model: nn.Module, example: Example, who: str, *, decomposed: bool = False
) -> torch.export.ExportedProgram:
    """torch's exported program in evaluation mode, for any batch size where it can be had."""
    args, kwargs = arguments_of(example)
    error: Exception | None = None
    for shapes in (batch_dimension(args, kwargs), None):
        try:
            with evaluating(model), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about torch's own insides and its recurrent layers' lists
                exported = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
                return exported.run_decompositions({}) if decomposed else exported
        except Exception as failure:  # tracing a user's model may raise anything; the last one is told
            error = failure
    said = next(iter(str(error).splitlines()), "")
    raise TorchliftError(f"{who}: the model cannot be traced ({type(error).__name__}: {said}).") from error


def trace(model: nn.Module, example: Example) -> Program:
    """The model's computation as a program of ours."""
    args, kwargs = arguments_of(example)
    exported = exported_program(model, example, "save", decomposed=True)
    made = program(exported, [f"input{k}" for k in range(len(args))] + list(kwargs))
    given = [*args, *kwargs.values()]
    if all(isinstance(x, Tensor) for x in given):
        made.inputs = [(list(x.shape), x.dtype) for x in given]
    return made.eval()


def program(exported: Any, names: list[str]) -> Program:
    """An exported program of torch as one of ours."""
    made = Program()
    signature = exported.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    places = [node for node in exported.graph.nodes if node.op == "placeholder"]
    inputs = [node for node in places if node.name not in held]
    weights = [node for node in places if node.name in held]
    numbers = {node: number for number, node in enumerate([*inputs, *weights])}
    made.names, made.weights, made.steps = names, [node.name for node in weights], []
    made.inputs, made.limit = None, None
    for node in weights:
        tensor = {**exported.state_dict, **exported.constants}[held[node.name]]
        if isinstance(tensor, nn.Parameter):
            made.register_parameter(node.name, tensor)
        else:
            made.register_buffer(node.name, tensor)
    for node in exported.graph.nodes:
        if node.op == "call_function" and str(node.target) not in CHECKS:
            numbers[node] = len(inputs) + len(weights) + len(made.steps)
            step = (
                target_name(node.target),
                refer(list(node.args), numbers),
                refer(dict(node.kwargs), numbers),
            )
            made.steps.append(step)
        elif node.op == "output":
            results = [r for r in refer(list(node.args[0]), numbers) if r is not None]
            made.results = results[0] if len(results) == 1 else tuple(results)
    return made


def target_name(target: Any) -> str:
    """A step's operation by name, if it is one that may be loaded again."""
    name = f"operator.{target.__name__}" if target.__module__ == "_operator" else str(target)
    try:
        operation(name)
    except TorchliftError as error:
        raise TorchliftError(f"save: {error} Save without example= and load with classes=[...].") from error
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
