"""A model as operations on values, v_k = op_k(v_i, v_j, …), each of them a module; read by torch.fx.

Functions and methods become the torch.nn module that computes the same: ``F.relu(x)`` is ``nn.ReLU()``,
``x.view(len, -1)`` is ``nn.Flatten()``. What has none, such as ``x + 2 * y``, is a :class:`Call`.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.fx.node import map_arg

from torchlift.errors import TorchliftError

LINEAR = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
AFFINE = (
    *LINEAR,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.ZeroPad1d,
    nn.ZeroPad2d,
    nn.Upsample,
    nn.PixelShuffle,
)
EVALUATED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
"""Affine in evaluation mode."""
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d)
"""Affine as long as the same entries are the largest."""


class ReadError(TorchliftError):
    """A model that computes something a method cannot use; the line names the operation."""


class NotAChainError(ReadError):
    """The operations do not follow one another: the model adds, joins or skips."""


class ReshapeSamples(nn.Module):
    """Samples of one shape as samples of another."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """The number of samples stays."""
        return x.reshape(len(x), *self.shape)

    def extra_repr(self) -> str:
        """The shape of a sample."""
        return str(self.shape)


@dataclasses.dataclass(frozen=True)
class Value:
    """In the arguments of a call: its input of that number."""

    number: int


@dataclasses.dataclass(frozen=True, eq=False)
class Attribute:
    """In the arguments of a call: a weight or buffer, looked up when it runs."""

    owner: nn.Module
    name: str


class Call(nn.Module):
    """function(values, constants): an operation that has no torch.nn module of its own."""

    def __init__(self, function: str | Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.arguments = function, (args, dict(kwargs))

    def forward(self, *values: Any) -> Any:
        """The function's result; a method is called on its first argument."""

        def fill(item: Any) -> Any:
            match item:
                case Value():
                    return values[item.number]
                case Attribute():
                    return getattr(item.owner, item.name)
                case tuple() | list():
                    return type(item)(fill(one) for one in item)
                case _:
                    return item

        args, kwargs = fill(self.arguments[0]), {k: fill(v) for k, v in self.arguments[1].items()}
        if isinstance(self.function, str):
            return getattr(args[0], self.function)(*args[1:], **kwargs)
        return self.function(*args, **kwargs)

    def extra_repr(self) -> str:
        """The function."""
        return named_module(self.function)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One operation; ``inputs`` are values by number: 0 is the model's input, k what step k − 1 gave."""

    name: str
    module: nn.Module
    inputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """The operations of a model in order; the last one's value is the output."""

    who: str
    model: nn.Module
    steps: tuple[Step, ...]

    def __call__(self, x: Tensor, instead: Mapping[int, Callable[..., Any]] | None = None) -> Tensor:
        """The model's output, with other functions ``instead`` of some steps."""
        values: list[Any] = [x]
        for number, step in enumerate(self.steps):
            function = (instead or {}).get(number, step.module)
            values.append(function(*(values[i] for i in step.inputs)))
        return values[-1]

    def chain(self) -> tuple[Step, ...]:
        """The steps, if each takes what the one before it gave; else the first that does not, by name."""
        for number, step in enumerate(self.steps):
            if step.inputs != (number,):
                raise NotAChainError(
                    f"{self.who}: {type(self.model).__name__} does {step.name!r} outside a plain chain of "
                    "layers"
                )
        return self.steps


def read_graph(model: nn.Module, leaf: Callable[[nn.Module], bool], who: str) -> Graph:
    """The model's operations; modules for which ``leaf`` holds are one each, whatever is inside them.

    ``leaf`` is called while torch.fx traces: it looks at types, not at weights. Raises ``ReadError`` for
    operations that are neither layers, ``leaf`` modules nor affine, by name.
    """
    if leaf(model) or isinstance(model, (*AFFINE, *EVALUATED, *MAXIMA)):
        return Graph(who, model, (Step("", check_leaf(who, "", model, leaf), (0,)),))
    try:
        graph = _Tracer(leaf).trace(model)
    except Exception as error:  # tracing a user's model may raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ReadError(f"{who}: {type(model).__name__} cannot be traced ({reason})") from error
    return _Reader(model, leaf, who).read(graph)


def check_leaf(who: str, name: str, module: nn.Module, leaf: Callable[[nn.Module], bool]) -> nn.Module:
    """A module that is affine, a maximum or a leaf, in evaluation mode where that matters."""
    kind = type(module).__name__
    if getattr(module, "track_running_stats", True) is False and isinstance(module, EVALUATED):
        raise ReadError(f"{who}: {name!r} ({kind}) keeps no running statistics, so it is not affine")
    if isinstance(module, EVALUATED) and module.training:
        raise ReadError(f"{who}: {name!r} ({kind}) is in training mode; call model.eval() first")
    if not (leaf(module) or isinstance(module, (*AFFINE, *EVALUATED, *MAXIMA))):
        raise ReadError(f"{who}: module {name!r} ({kind}) is not supported")
    return module


class _Tracer(torch.fx.Tracer):
    def __init__(self, leaf: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self.leaf = leaf

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = self.leaf(m) or isinstance(m, (*AFFINE, *EVALUATED, *MAXIMA))
        return leaf or super().is_leaf_module(m, module_qualified_name)


class _Reader:
    """From the nodes of torch.fx to steps."""

    def __init__(self, model: nn.Module, leaf: Callable[[nn.Module], bool], who: str) -> None:
        self.model, self.leaf, self.who = model, leaf, who
        self.steps: list[Step] = []
        self.values: dict[torch.fx.Node, int] = {}
        self.numbers: set[torch.fx.Node] = set()
        """Nodes that are sizes, not values of the network."""

    def read(self, graph: torch.fx.Graph) -> Graph:
        """All nodes; what the output does not need is left out."""
        output = 0
        for node in graph.nodes:
            match node.op:
                case "placeholder" if not self.values:
                    self.values[node] = 0
                case "placeholder" if not node.users:
                    pass
                case "output" if isinstance(node.args[0], torch.fx.Node):
                    output = self.values[node.args[0]]
                case "get_attr":
                    pass
                case "call_module" | "call_function" | "call_method":
                    self.add(node)
                case _:
                    kind = "output" if node.op == "output" else "input"
                    raise ReadError(f"{self.who}: {type(self.model).__name__} has more than one {kind}")
        return Graph(self.who, self.model, needed(self.steps, output))

    def add(self, node: torch.fx.Node) -> None:
        """One more step."""
        if node.op == "call_module":
            name, inputs = str(node.target), node.all_input_nodes
            module = check_leaf(self.who, name, self.model.get_submodule(name), self.leaf)
        else:
            name = node.name
            module, inputs = self.function(node)
        self.steps.append(Step(name, module, tuple(self.values[one] for one in inputs)))
        self.values[node] = len(self.steps)

    def function(self, node: torch.fx.Node) -> tuple[nn.Module, list[torch.fx.Node]]:
        """A call as a module, and the nodes it takes."""
        name = named_module(node.target)
        inputs = [one for one in node.all_input_nodes if one.op != "get_attr"]
        if gives_sizes(node, name) or (inputs and all(one in self.numbers for one in inputs)):
            self.numbers.add(node)
            return self.call(node, inputs), inputs
        flowing = [one for one in inputs if one not in self.numbers]
        if name in ("view", "reshape"):
            shape = sample_shape(node.args[1:])
            if shape is not None:
                return nn.Flatten() if shape == (-1,) else ReshapeSamples(shape), flowing
        if name in MODULES and len(inputs) == 1 and inputs[0] is node.args[0]:
            module = MODULES[name](*node.args[1:], **node.kwargs)
            if not self.leaf(module):
                check_leaf(self.who, name, module, self.leaf)
            return module, inputs
        if not affine_call(node, name, flowing):
            raise ReadError(
                f"{self.who}: {type(self.model).__name__} does {name!r}, which is not known as affine or as "
                "an activation"
            )
        return self.call(node, inputs), inputs

    def call(self, node: torch.fx.Node, inputs: list[torch.fx.Node]) -> Call:
        """The function itself, with places for its inputs."""

        def argument(item: torch.fx.Node) -> Any:
            if item.op != "get_attr":
                return Value(inputs.index(item))
            path, _, name = str(item.target).rpartition(".")
            return Attribute(self.model.get_submodule(path), name)

        function = IN_PLACE.get(named_module(node.target), node.target)
        args: Any = map_arg(node.args, argument)
        kwargs: Any = map_arg(node.kwargs, argument)
        return Call(function, tuple(args), dict(kwargs))


def needed(steps: Sequence[Step], output: int) -> tuple[Step, ...]:
    """The steps that the output depends on, renumbered."""
    wanted = {output}
    for number in range(len(steps), 0, -1):
        if number in wanted:
            wanted.update(steps[number - 1].inputs)
    order = sorted(wanted | {0})
    new_number = {old: new for new, old in enumerate(order)}
    kept = [steps[number - 1] for number in order if number]
    return tuple(dataclasses.replace(s, inputs=tuple(new_number[i] for i in s.inputs)) for s in kept)


def named_module(target: Any) -> str:
    """What a function or method is called, in place or not."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name if name.startswith("__") else name.strip("_")


def gives_sizes(node: torch.fx.Node, name: str) -> bool:
    """Whether a call gives sizes: ``x.size(0)``, ``x.shape``."""
    return name in ("size", "dim", "numel") or (name == "getattr" and node.args[1] in ("shape", "ndim"))


def sample_shape(args: Any) -> tuple[int, ...] | None:
    """The shape of a sample in ``x.view(n, …)``: whole numbers after the first; None if it is computed."""
    shape = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    rest = tuple(shape[1:])
    static = all(isinstance(size, int) for size in rest) and rest and not (shape[0] == -1 and -1 in rest)
    return rest if static else None


def clamp(min: float | None = None, max: float | None = None) -> nn.Module:
    """``x.clamp(min, max)``."""
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    return nn.ReLU() if (low, high) == (0, math.inf) else nn.Hardtanh(low, high)


def dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    """``F.dropout``: nothing outside training."""
    del inplace
    return nn.Dropout(p).train(training)


MODULES: dict[str, Callable[..., nn.Module]] = {
    "relu": lambda inplace=False: nn.ReLU(),
    "relu6": lambda inplace=False: nn.ReLU6(),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: nn.LeakyReLU(negative_slope),
    "elu": lambda alpha=1.0, inplace=False: nn.ELU(alpha),
    "hardtanh": lambda min_val=-1.0, max_val=1.0, inplace=False: nn.Hardtanh(min_val, max_val),
    "clamp": clamp,
    "clip": clamp,
    "hardsigmoid": lambda inplace=False: nn.Hardsigmoid(),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softshrink": nn.Softshrink,
    "softplus": nn.Softplus,
    "softmax": lambda dim=None, _stacklevel=3, dtype=None: nn.Softmax(dim),
    "dropout": dropout,
    "flatten": lambda start_dim=0, end_dim=-1: nn.Flatten(start_dim, end_dim),
    "contiguous": nn.Identity,
    "clone": nn.Identity,
    "max_pool1d": nn.MaxPool1d,
    "max_pool2d": nn.MaxPool2d,
    "avg_pool1d": nn.AvgPool1d,
    "avg_pool2d": nn.AvgPool2d,
    "adaptive_avg_pool1d": nn.AdaptiveAvgPool1d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
}
"""The module of a function's arguments, the first left out."""

IN_PLACE: dict[str, Callable[..., Any]] = {
    "iadd": operator.add,
    "isub": operator.sub,
    "imul": operator.mul,
    "itruediv": operator.truediv,
}
"""Values must not change in place."""

SUMS = {"add", "iadd", "sub", "isub", "neg", "cat", "concat", "concatenate", "stack"}
MOVES = {
    "view", "reshape", "permute", "transpose", "swapaxes", "unsqueeze", "squeeze", "flip", "pad", "getitem",
    "chunk", "split", "unflatten", "expand", "repeat", "roll", "pixel_shuffle", "interpolate",
}  # fmt: skip
PRODUCTS = {
    "mul", "imul", "truediv", "itruediv", "div", "matmul", "linear", "conv1d", "conv2d", "conv_transpose1d",
    "conv_transpose2d",
}  # fmt: skip
AVERAGES = {"mean", "sum"}


def affine_call(node: torch.fx.Node, name: str, flowing: Sequence[torch.fx.Node]) -> bool:
    """Whether the call is affine in the values it takes, sample by sample."""
    if name in PRODUCTS:  # one factor alone may come from the input, and no divisor
        first = node.args[0] if node.args else None
        either = name in ("mul", "imul", "matmul")
        return len(flowing) == 1 and (either or flowing[0] is first) and node.args.count(flowing[0]) < 2
    if name in AVERAGES:
        dims = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        chosen = dims if isinstance(dims, tuple | list) else [dims]
        return all(isinstance(dim, int) and dim != 0 for dim in chosen)
    return name in SUMS | MOVES
