"""Read an ordinary model into lifted layers, or name the first module that cannot be."""

import math
from collections.abc import Iterator

import torch.fx
from torch import nn

from torchlift.convex import activations
from torchlift.convex.activations import Act, Activation, recognise
from torchlift.lifted.layers import Conv, Dense, Layer

_FIXED = (nn.Flatten, nn.Unflatten, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


class NotAChainError(ValueError):
    """The model has skip connections or computes outside its modules: see ``torchlift.lifted.traced``."""


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Act) or super().is_leaf_module(m, module_qualified_name)


def trace(model: nn.Module) -> torch.fx.GraphModule:
    """The model's graph, its activations whole."""
    try:
        return torch.fx.GraphModule(model, _Tracer().trace(model))
    except Exception as error:  # tracing a user's model may raise anything
        raise ValueError(f"lifted: {type(model).__name__} cannot be traced ({error})") from error


def check_smooth(name: str, activation: Activation) -> None:
    """Block steps need the Lipschitz constant of σ: the sign has a penalty, but cannot be trained through."""
    if not math.isfinite(activation.lipschitz):
        raise ValueError(
            f"lifted: activation {name!r} ({activation}) jumps, so no step size exists; use hard_tanh instead"
        )


def modules_in_order(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The leaves of nested Sequentials, or the chain that torch.fx finds in any other module."""
    if isinstance(model, nn.Sequential):
        for name, child in model.named_children():
            yield from modules_in_order(child, f"{prefix}{name}.")
    elif next(model.children(), None) is None or recognise(model) is not None:
        yield prefix.removesuffix("."), model
    else:
        yield from _traced(model, prefix)


def _traced(model: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    graph = trace(model)
    last: torch.fx.Node | None = None
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            last = node
            continue
        chained = len(node.all_input_nodes) == 1 and node.all_input_nodes[0] is last
        if node.op != "call_module" or not chained:
            raise NotAChainError(
                f"lifted: {type(model).__name__} does {node.name!r} outside a plain chain of modules; "
                "networks with skips are trained by method 'isgm' with the Bregman penalty"
            )
        last = node
        yield f"{prefix}{node.target}", model.get_submodule(str(node.target))


def read(model: nn.Module) -> list[Layer]:
    """The layers v_l = A_l u_{l−1} + b_l, u_l = σ_l(v_l) of a model that ends in an affine layer."""
    layers: list[Layer] = []
    waiting: list[nn.Module] = []
    for name, module in modules_in_order(model):
        match module:
            case nn.Identity():
                continue
            case nn.Linear():
                layers.append(Dense(name, module, _take(waiting), None))
            case nn.Conv2d() if module.groups == 1 and module.padding_mode == "zeros":
                layers.append(Conv(name, module, _take(waiting), None))
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                _read_norm(name, module, layers, waiting)
            case _ if isinstance(module, _FIXED):
                _close(layers)
                waiting.append(module)
            case _:
                _read_activation(name, module, layers, waiting)
    if not layers or waiting or layers[-1].activation is not None:
        raise ValueError(
            "lifted: the model must end in a Linear or Conv2d layer whose output enters the loss"
        )
    for layer in layers[:-1]:
        layer.activation = layer.activation or activations.get("linear")
    return layers


def _take(waiting: list[nn.Module]) -> nn.Sequential:
    fixed = nn.Sequential(*waiting)
    waiting.clear()
    return fixed


def _close(layers: list[Layer]) -> None:
    """A layer that is pooled or flattened without an activation has the linear one."""
    if layers and layers[-1].activation is None:
        layers[-1].activation = activations.get("linear")


def _read_norm(
    name: str, module: nn.BatchNorm1d | nn.BatchNorm2d, layers: list[Layer], waiting: list[nn.Module]
) -> None:
    if module.training:
        raise ValueError(f"lifted: {name!r} is a batch norm in training mode; call model.eval() first")
    if layers and layers[-1].activation is None and not waiting and layers[-1].norm is None:
        last = layers.pop()
        layers.append(type(last)(last.name, last.module, last.before, module))  # pyright: ignore[reportArgumentType]
    else:
        _close(layers)
        waiting.append(module)


def _read_activation(name: str, module: nn.Module, layers: list[Layer], waiting: list[nn.Module]) -> None:
    activation = recognise(module)
    if activation is None:
        raise ValueError(
            f"lifted: module {name!r} ({type(module).__name__}) is not supported; known are Linear, Conv2d "
            "without groups, average pooling, Flatten, batch norm in eval mode and lifted.activations"
        )
    check_smooth(name, activation)
    if not layers or waiting or layers[-1].activation is not None:
        raise ValueError(f"lifted: activation {name!r} does not follow a Linear or Conv2d layer")
    if activation.vector and isinstance(layers[-1], Conv):
        raise ValueError(f"lifted: activation {name!r} acts on vectors, but follows a convolution")
    layers[-1].activation = activation
    layers[-1].leaky = module if isinstance(module, nn.LeakyReLU) else None
