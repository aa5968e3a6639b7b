"""Activations that a forward calls as functions (``F.relu(x)``, ``x.relu()``), made modules of their own."""

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from torchlift.core import Node, Problem

KINDS: dict[Any, type[nn.Module]] = {
    functional.relu: nn.ReLU,
    functional.relu6: nn.ReLU6,
    functional.sigmoid: nn.Sigmoid,
    functional.hardsigmoid: nn.Hardsigmoid,
    functional.tanh: nn.Tanh,
    torch.relu: nn.ReLU,
    torch.sigmoid: nn.Sigmoid,
    torch.tanh: nn.Tanh,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
"""Functions, and methods of tensors by name, with the modules that compute the same."""


class OwnForward(fx.Tracer):
    """Reads the forward of one module; its children are called as they are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Every child is one call."""
        del m, module_qualified_name
        return True


def with_activation_modules(problem: Problem) -> Problem:
    """A copy of the problem in which activations are modules, as far as the forwards can be read; weights
    keep their names. A forward that branches on values, or on the mode of training, stays as it is; so does a
    function of its own, as a GELU that calls tanh."""
    problem = copy.deepcopy(problem)
    body = problem.body()
    if body is None:
        return problem
    inside = {id(module) for module in body.modules()}
    replaced: dict[int, nn.Module | None] = {}
    for name, module in reversed(list(problem.named_modules(remove_duplicate=False))):
        if id(module) not in inside or type(module).__module__.startswith("torch.") or not name:
            continue
        if id(module) not in replaced:
            replaced[id(module)] = None if isinstance(module, Node) else with_activation_children(module)
        new = replaced[id(module)]
        if new is not None:
            problem.set_submodule(name, new)
    return problem


def with_activation_children(module: nn.Module) -> nn.Module | None:
    """The module with its activations as children; None where it calls none, or cannot be read."""
    graphs = [own_graph(module, training) for training in (True, False)]
    if any(graph is None for graph in graphs):
        return None
    graph, other = graphs
    assert graph is not None
    assert other is not None
    called = [node for node in graph.nodes if activation_module(node) is not None]
    children = dict(module.named_children())
    if not children and not tensor_names(module):  # a function: only what it gives is an activation's value
        called = [node for node in called if any(user.op == "output" for user in node.users)]
    if not called or str(graph) != str(other):
        return None
    for node in called:
        kind = activation_module(node)
        assert kind is not None
        name = next(f"act{k}" for k in range(1, len(children) + 2) if f"act{k}" not in children)
        children[name] = kind()
        with graph.inserting_after(node):
            new = graph.call_module(name, (node.args[0] if node.args else node.kwargs["input"],))
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    graph_module = fx.GraphModule({**own, **children}, graph, type(module).__name__)
    return graph_module.train(module.training) if tensor_names(graph_module) == tensor_names(module) else None


def tensor_names(module: nn.Module) -> set[str]:
    """The names of all parameters and buffers."""
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())}


def own_graph(module: nn.Module, training: bool) -> fx.Graph | None:
    """The graph of a module's own forward in this mode, or None where Python decides on values."""
    mode = module.training
    module.training = training
    try:
        return OwnForward().trace(module)
    except Exception:
        return None
    finally:
        module.training = mode


def activation_module(node: fx.Node) -> type[nn.Module] | None:
    """The module that computes what a call does, where it is an activation that leaves its input alone."""
    if node.op not in ("call_function", "call_method"):
        return None
    inplace = node.kwargs.get("inplace", False) or (len(node.args) > 1 and node.args[1] is True)
    return None if inplace else KINDS.get(node.target)
