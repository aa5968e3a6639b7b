"""A network as a chain u_l = σ_l(A_l u_{l−1} + b_l), read from a module and compared with it."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
import torch.fx
from torch import Tensor, nn

from torchlift.convex.activations import Activation, Linear, recognize
from torchlift.convex.operators import Affine, Identity, Reshape, affine
from torchlift.inversion.residual import MonotoneResidual
from torchlift.inversion.result import InversionError

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """One affine map and the activation after it."""

    name: str
    affine: Affine
    activation: Activation

    def __call__(self, u: Tensor) -> Tensor:
        """σ(A u + b)."""
        return self.activation(self.affine(u))


def leaves(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules in the order they run: nested Sequentials, or the chain torch.fx finds."""
    if type(model).forward is nn.Sequential.forward:
        for name, child in vars(model)["_modules"].items():  # named_children would drop a module used twice
            yield from leaves(child, f"{prefix}{name}.")
    elif known(model) or next(model.children(), None) is None:
        yield prefix.removesuffix("."), model
    else:
        yield from _traced(model, prefix)


def known(module: nn.Module) -> bool:
    """Whether a module with children is still one step of the chain."""
    return isinstance(module, MonotoneResidual) or recognize(module) is not None


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return known(m) or super().is_leaf_module(m, module_qualified_name)


def _traced(model: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    kind = type(model).__name__
    try:
        graph = _Tracer().trace(model)
    except Exception as error:
        raise InversionError(
            f"tl.invert: {prefix}{kind} is not a chain of modules: {str(error).splitlines()[0]}"
        ) from error
    last: torch.fx.Node | None = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            last = node
            continue
        if node.op != "call_module" or node.all_input_nodes != [last]:
            raise InversionError(
                f"tl.invert: {prefix}{kind} computes {node.name!r} outside a plain chain of modules; skips "
                "are inverted as torchlift.inversion.MonotoneResidual, all else with method='adam' or 'lbfgs'"
            )
        last = node
        yield from leaves(model.get_submodule(str(node.target)), f"{prefix}{node.target}.")


def read(model: nn.Module, shape: Shape, like: Tensor) -> list[Stage]:
    """The stages of the model for samples of ``shape``, or an error that names the module in the way."""
    stages: list[Stage] = []
    names: list[str] = []
    waiting = Affine(Identity(), like.new_zeros(shape), shape)
    for name, module in leaves(model):
        size = tuple(waiting.offset.shape)
        if not names and not stages and isinstance(module, nn.Linear) and len(size) > 1:
            flat = Reshape(size, (math.prod(size),))
            waiting = Affine(flat, like.new_zeros(math.prod(size)), shape)
            size = (math.prod(size),)
        activation = recognize(module)
        if activation is None:
            waiting = _next(name, module, size, like).after(waiting)
            names.append(name)
            continue
        _check(name, activation, size)
        stages.append(Stage(name, waiting, activation))
        waiting, names = Affine(Identity(), torch.zeros_like(waiting.offset), size), []
    if names or not stages:
        stages.append(Stage(names[-1] if names else "", waiting, Linear()))
    return stages


def _next(name: str, module: nn.Module, size: Shape, like: Tensor) -> Affine:
    kind = type(module).__name__
    if module.training and isinstance(module, nn.modules.batchnorm._BatchNorm | nn.Dropout):  # pyright: ignore[reportPrivateUsage]
        raise InversionError(f"tl.invert: {name!r} ({kind}) is in training mode; call model.eval() first")
    try:
        found = affine(module, size, like)
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InversionError(
            f"tl.invert: {name!r} ({kind}) does not take samples of {size}: {reason}"
        ) from None
    if found is None:
        raise InversionError(
            f"tl.invert: {name!r} ({kind}) cannot be run backward; known are Linear, Conv2d with zero "
            "padding, average pooling, Flatten, batch norm in eval mode, and the activations of tl.lifted"
        )
    return found


def _check(name: str, activation: Activation, size: Shape) -> None:
    if not math.isfinite(activation.lipschitz):
        raise InversionError(
            f"tl.invert: {name!r} ({activation}) jumps and cannot be run backward; use hard_tanh"
        )
    if activation.vector and len(size) != 1:
        raise InversionError(
            f"tl.invert: {name!r} ({activation}) acts on vectors, but gets samples of {size}"
        )


def run(stages: Sequence[Stage], u: Tensor) -> list[Tensor]:
    """u₁, …, u_L of the forward pass."""
    states: list[Tensor] = []
    for stage in stages:
        u = stage(u)
        states.append(u)
    return states


def agree(model: nn.Module, stages: Sequence[Stage], shape: Shape, like: Tensor, flat: bool) -> None:
    """Refuse to go on if the stages do not compute what the model computes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *shape, generator=generator, dtype=torch.float64).to(like)
    with torch.no_grad():
        wanted, found = model(x.flatten(1) if flat else x), run(stages, x)[-1]
    rounding = 1e4 * torch.finfo(like.dtype).eps * (1 + float(wanted.abs().max()))
    if found.shape != wanted.shape or float((found - wanted).abs().max()) > rounding:
        raise InversionError(
            f"tl.invert: {type(model).__name__} does something besides its modules (hooks, own forward): "
            "it was read as another network; use method='adam' or 'lbfgs'"
        )
