"""Read an ordinary model into lifted layers, compare both, or name the first module that cannot be."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from torchlift.convex import activations
from torchlift.convex.activations import Act as Act
from torchlift.convex.activations import Activation, Channelwise, is_activation, recognize
from torchlift.flops import uncounted
from torchlift.flow.graph import Call, Graph, NotAChainError, ReadError, ReshapeSamples, Step, read_graph
from torchlift.methods.lifted.layers import Conv, DenseLayer, Layer

_FIXED = (nn.Flatten, nn.Unflatten, ReshapeSamples, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d)
_COMPARED = 4  # samples of the data on which what was read is compared with the model
_ROUNDING = 1e4  # units of the last place they may differ by


def graph_of(model: nn.Module) -> Graph:
    """The model's operations, its activations whole; raises by name where they are not affine."""
    check_precision(model)
    return read_graph(model, is_activation, "lifted")


def chain_of(model: nn.Module) -> tuple[Step, ...]:
    """The operations of a model that is a chain, for methods that solve it layer by layer."""
    try:
        return graph_of(model).chain()
    except NotAChainError as error:
        hint = "methods 'contrastive' and 'unified' take networks with skips"
        raise NotAChainError(f"{error}; {hint}") from None


def check_smooth(name: str, activation: Activation) -> None:
    """Block steps need the Lipschitz constant of σ: the sign has a penalty, but cannot be trained through."""
    if not math.isfinite(activation.lipschitz):
        raise ReadError(
            f"lifted: activation {name!r} ({activation}) jumps, so no step size exists; use hard_tanh instead"
        )


def check_precision(model: nn.Module) -> None:
    """Block solvers factorize matrices: half precision is an error, and so are models without weights."""
    weight = next(model.parameters(), None)
    if weight is None:
        raise ReadError(f"lifted: {type(model).__name__} has no weights to train")
    if weight.dtype not in (torch.float32, torch.float64):
        raise ReadError(f"lifted: the model is in {weight.dtype}; call model.float() or model.double() first")


def read(model: nn.Module) -> list[Layer]:
    """The layers v_l = A_l u_{l−1} + b_l, u_l = σ_l(v_l) of a model that ends in an affine layer."""
    layers: list[Layer] = []
    waiting: list[nn.Module] = []
    for step in chain_of(model):
        name, module = step.name, step.module
        match module:
            case nn.Identity() | nn.Dropout() | nn.Dropout1d() | nn.Dropout2d():
                continue
            case nn.Linear():
                layers.append(DenseLayer(name, module, _take(name, waiting), None))
            case nn.Conv2d() if module.padding_mode == "zeros":
                _check_groups(name, module)
                layers.append(Conv(name, module, _take(name, waiting), None))
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                _read_norm(module, layers, waiting)
            case _ if isinstance(module, _FIXED):
                _close(layers)
                waiting.append(module)
            case _:
                _read_activation(name, module, layers, waiting)
    if not layers or waiting or layers[-1].activation is not None:
        raise ReadError("lifted: the model must end in a Linear or Conv2d layer whose output enters the loss")
    for layer in layers[:-1]:
        layer.activation = layer.activation or activations.get("linear")
    _check_ties(layers)
    return layers


def _check_groups(name: str, module: nn.Conv2d) -> None:
    if module.groups > 1:
        raise NotAChainError(
            f"lifted: {name!r} is a convolution in {module.groups} groups, which exact blocks do not support"
        )


def _take(name: str, waiting: list[nn.Module]) -> nn.Sequential:
    """What stands between the last layer and this one; maxima go with flattening alone."""
    if any(isinstance(m, nn.MaxPool2d) for m in waiting):
        others = [type(m).__name__ for m in waiting if not isinstance(m, nn.MaxPool2d | nn.Flatten)]
        if others or any(isinstance(m, nn.MaxPool2d) and m.return_indices for m in waiting):
            raise ReadError(
                f"lifted: before {name!r} max-pooling goes with Flatten alone, not {others or 'indices'}"
            )
    fixed = nn.Sequential(*waiting)
    waiting.clear()
    return fixed


def _close(layers: list[Layer]) -> None:
    """A layer that is pooled or flattened without an activation has the linear one."""
    if layers and layers[-1].activation is None:
        layers[-1].activation = activations.get("linear")


def _read_norm(
    module: nn.BatchNorm1d | nn.BatchNorm2d, layers: list[Layer], waiting: list[nn.Module]
) -> None:
    if layers and layers[-1].activation is None and not waiting and layers[-1].norm is None:
        last = layers.pop()
        layers.append(type(last)(last.name, last.module, last.before, module))  # pyright: ignore[reportArgumentType]
    else:
        _close(layers)
        waiting.append(module)


def _read_activation(name: str, module: nn.Module, layers: list[Layer], waiting: list[nn.Module]) -> None:
    activation = recognize(module)
    if activation is None:
        kind = f"operation {name!r}" if isinstance(module, Call) else f"{name!r} ({type(module).__name__})"
        raise NotAChainError(
            f"lifted: {kind} has no block; known are Linear, Conv2d with zero padding and one group, 2-D "
            "pooling, Flatten, batch norm in eval mode and lifted.activations"
        )
    check_smooth(name, activation)
    if not layers or waiting or layers[-1].activation is not None:
        raise ReadError(f"lifted: activation {name!r} does not follow a Linear or Conv2d layer")
    if activation.vector and isinstance(layers[-1], Conv):
        if not isinstance(module, nn.Softmax) or module.dim != 1:
            raise ReadError(f"lifted: activation {name!r} acts on the last dimension of an image")
        activation = Channelwise(activation)
    layers[-1].activation = activation
    layers[-1].source = module


def _check_ties(layers: Sequence[Layer]) -> None:
    """Weights that two layers share would be two variables here, and the last one written back would win."""
    seen: dict[int, str] = {}
    for layer in layers:
        for leaf in ("weight", "bias"):
            tensor = getattr(layer.module, leaf)
            if tensor is None:
                continue
            if leaf not in vars(layer.module)["_parameters"]:
                raise ReadError(
                    f"lifted: {leaf} of {layer.name!r} is computed (weight norm, parametrization), not "
                    "stored; remove the parametrization first"
                )
            start = tensor.data_ptr()
            if start in seen:
                how = f"shares its {leaf} with {seen[start]!r}"
                how = "is used twice" if seen[start] == layer.name else how
                raise ReadError(
                    f"lifted: {layer.name!r} {how}: one weight in two layers has no block of its own; "
                    "untie them"
                )
            seen[start] = layer.name


def check_reading(model: nn.Module, network: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Raise if what was read does not compute what the model computes on the first samples."""
    some = x[:_COMPARED]
    try:
        with torch.no_grad(), uncounted():
            wanted, read_as = model(some), network(some)
    except (RuntimeError, IndexError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ReadError(
            f"lifted: {type(model).__name__} does not take inputs of shape {tuple(some.shape)}: {reason}"
        ) from error
    if isinstance(wanted, Tensor) and wanted.shape == read_as.shape:
        gap = float((wanted - read_as).abs().max())
        if gap <= _ROUNDING * torch.finfo(read_as.dtype).eps * (1 + float(wanted.abs().max())):
            return
        how = f"they differ by {gap:.2g}"
    else:
        shape = tuple(wanted.shape) if isinstance(wanted, Tensor) else type(wanted).__name__
        how = f"{tuple(read_as.shape)} instead of {shape}"
    raise ReadError(
        f"lifted: {type(model).__name__} computes something besides the layers read from it ({how}); "
        f"look at {_suspects(model)}"
    )


def _suspects(model: nn.Module) -> str:
    """Modules with hooks, and known ones whose forward was replaced."""
    names: list[str] = []
    for name, module in model.named_modules():
        hooked = vars(module)["_forward_hooks"] or vars(module)["_forward_pre_hooks"]
        ancestor = next((c for c in type(module).__mro__ if c.__module__.startswith("torch.nn")), nn.Module)
        own = ancestor is not nn.Module and type(module).forward is not ancestor.forward
        if hooked or own:
            names.append(f"{name or 'the model'} ({'hooks' if hooked else 'its own forward'})")
    return ", ".join(names) or "inputs and modules outside the chain"
