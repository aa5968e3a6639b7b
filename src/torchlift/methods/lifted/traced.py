"""Ordinary modules with skip connections in the form K u, M u = V z, z = σ(W u + b), through torch.fx.

Between its activations such a model is affine: given the input and the activations z, everything else follows
from running its graph with the outputs of the activations replaced by z.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.nn import functional

from torchlift.convex.activations import Activation
from torchlift.convex.activations import get as get_activation
from torchlift.methods.lifted.read import ReadError, agree, check_precision, check_smooth, recognize, trace
from torchlift.methods.lifted.unified import Unified

_AFFINE_MODULES = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.ZeroPad2d,
    nn.MaxPool1d,  # affine as long as the same entries are the largest: steps follow the current ones
    nn.MaxPool2d,
)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout2d)  # affine in eval mode
_ADDITIONS = {operator.add, operator.iadd, operator.sub, operator.neg, torch.add, torch.sub}
_AFFINE_FUNCTIONS = {*_ADDITIONS, torch.cat, torch.flatten}
_AFFINE_METHODS = {"add", "sub", "flatten", "view", "reshape", "mean", "size", "contiguous", "permute"}
_FUNCTIONS: dict[Callable[..., Any], str] = {
    torch.relu: "relu",
    functional.relu: "relu",
    torch.tanh: "tanh",
    functional.tanh: "tanh",
    torch.sigmoid: "sigmoid",
    functional.sigmoid: "sigmoid",
}


class Traced(Unified):
    """A user's module whose only non-affine parts are activations of the table; its parameters are shared."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        check_precision(model)
        self.model, self.graph, self.checked = model, trace(model), False
        found = {node: self._read(node) for node in self.graph.graph.nodes}
        self.nodes = {node: act for node, act in found.items() if act is not None}
        self.activations = list(self.nodes.values())

    def _read(self, node: torch.fx.Node) -> Activation | None:
        """The activation a node computes, None if it is affine; anything else is refused by name."""
        if node.op == "call_module":
            return self._read_module(node, self.model.get_submodule(str(node.target)))
        if node.op == "call_function" and not isinstance(node.target, str) and node.target in _FUNCTIONS:
            return get_activation(_FUNCTIONS[node.target])
        if node.op == "call_method" and node.target in ("relu", "tanh", "sigmoid"):
            return get_activation(str(node.target))
        known = _AFFINE_METHODS if node.op == "call_method" else _AFFINE_FUNCTIONS
        if node.op in ("placeholder", "output", "get_attr") or node.target in known:
            return None
        raise ReadError(
            f"lifted: {type(self.model).__name__} does {node.name!r}, which is not known as affine"
        )

    def _read_module(self, node: torch.fx.Node, module: nn.Module) -> Activation | None:
        if isinstance(module, _NORMS) and module.training:
            raise ReadError(f"lifted: {str(node.target)!r} is in training mode; call model.eval() first")
        if isinstance(module, (*_AFFINE_MODULES, *_NORMS)):
            return None
        activation = recognize(module)
        if activation is None:
            kind = type(module).__name__
            raise ReadError(f"lifted: module {str(node.target)!r} ({kind}) is not supported")
        check_smooth(str(node.target), activation)
        return activation

    def _run(self, x: Tensor, z: Sequence[Tensor] | None) -> tuple[list[Tensor], list[Tensor]]:
        """Pre-activations with the output last, and activations: those given, or the forward pass's."""
        interpreter = _Substituted(self.graph, self.nodes, z)
        output = interpreter.run(x)
        return [*interpreter.before, output], interpreter.after

    def preactivations(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """v₁, …, v_L and the output, for given activations."""
        return self._run(x, z)[0]

    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass, which is compared with the model's own the first time."""
        if not self.checked:
            agree(self.model, lambda some: self._run(some, None)[0][-1], x)
            self.checked = True
        return self._run(x, None)[1]

    def forward(self, x: Tensor) -> Tensor:
        """The user's own forward pass."""
        return self.model(x)


class _Substituted(torch.fx.Interpreter):
    """Runs a graph; the output of the l-th activation is z_l where z is given."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        nodes: dict[torch.fx.Node, Activation],
        z: Sequence[Tensor] | None,
    ) -> None:
        super().__init__(module)
        self.acts, self.given = nodes, z
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []

    def run_node(self, n: torch.fx.Node) -> Any:
        """Activations are looked up, all else is computed."""
        if n.target is operator.iadd:  # states must not change in place
            return operator.add(*self.fetch_args_kwargs_from_env(n)[0])
        if n not in self.acts:
            return super().run_node(n)
        v = self.fetch_args_kwargs_from_env(n)[0][0]
        if self.acts[n].vector and v.ndim > 2:
            raise ReadError(f"lifted: {n.name!r} acts on vectors, but its input has shape {tuple(v.shape)}")
        self.before.append(v)
        self.after.append(self.acts[n](v) if self.given is None else self.given[len(self.after)])
        return self.after[-1]
