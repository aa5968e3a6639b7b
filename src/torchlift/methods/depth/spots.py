"""Where two layers could be one: layer → norm → activation → layer, and x + activation(layer(x))."""

import dataclasses
from collections import Counter

from torch import nn

from torchlift.core.modules import is_frozen
from torchlift.core.weights import computed
from torchlift.flow.ops import Flow, Op

WeightLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
KINDS = (nn.Linear, *CONVOLUTIONS)


@dataclasses.dataclass(frozen=True)
class Spot:
    """A layer, the norms and the activation after it, and what takes the result; or why it must stay."""

    layer: str
    norms: tuple[str, ...] = ()
    bend: Op | None = None
    into: str = ""
    """The layer it can be merged into."""
    block: str = ""
    """The module that is x + activation(layer(x)), and can be one layer."""
    reason: str = ""
    """Why it cannot be merged."""


def spots(model: nn.Module, shape: Flow) -> list[Spot]:
    """All layers of a model that an activation or another layer follows, in order."""
    by_name = dict(model.named_modules())
    calls = Counter(op.name for op in shape.ops if op.kind in ("layer", "norm"))
    calls += Counter(op.name for op in shape.of("activation"))
    owners = Counter(id(p) for module in by_name.values() for p in module.parameters(recurse=False))
    shared = {
        n for n, module in by_name.items() if any(owners[id(p)] > 1 for p in module.parameters(recurse=False))
    }
    after_each_layer = [spot(by_name, shape, op) for op in shape.of("layer")]
    once = [with_reason(by_name, one, calls, shared) for one in after_each_layer]
    return [one for one in once if one.bend is not None or one.into or one.block]


def spot(by_name: dict[str, nn.Module], shape: Flow, op: Op) -> Spot:
    """What follows a layer."""
    norms, after = through_norms(shape, shape.next(op))
    bend = after if isinstance(after, Op) and after.kind == "activation" else None
    if bend is not None:
        after = shape.next(bend)
    one = Spot(op.name, norms, bend)
    if isinstance(after, str):
        return dataclasses.replace(one, reason=f"its output goes to {after}")
    if bend is not None and any(True for _ in by_name[bend.name].children()):
        kind = type(by_name[bend.name]).__name__
        why = f"{bend.function} is called inside {kind}.forward: make it a module of its own"
        return dataclasses.replace(one, reason=why)
    if after.kind == "layer":
        return dataclasses.replace(one, into=after.name)
    if after.kind == "add" and op.inputs[0] in after.inputs:
        return residual(by_name, shape, one, op, after)
    why = "padding comes" if after.function == "pad" else f"{after.function} comes"
    return dataclasses.replace(one, reason=f"{why} between it and the next layer")


def through_norms(shape: Flow, after: Op | str) -> tuple[tuple[str, ...], Op | str]:
    """The batch norms that come first, and what comes then."""
    names: tuple[str, ...] = ()
    while isinstance(after, Op) and after.kind == "norm":
        names, after = (*names, after.name), shape.next(after)
    return names, after


def residual(by_name: dict[str, nn.Module], shape: Flow, one: Spot, op: Op, plus: Op) -> Spot:
    """A skip connection around the layer: one layer, if a module holds that and nothing else."""
    block = plus.name
    inside = [o for o in shape.ops if o.name == block or o.name.startswith(f"{block}.")]
    names = {one.layer, *one.norms, block, *([one.bend.name] if one.bend else [])}
    if not block or {o.name for o in inside} != names or len(inside) != len(names):
        why = f"the sum is computed in {type(by_name[block]).__name__}.forward, with other things"
        return dataclasses.replace(one, reason=why)
    layer = by_name[op.name]
    if isinstance(layer, CONVOLUTIONS) and not keeps_size(layer):
        return dataclasses.replace(one, reason="its convolution changes the size of the maps")
    return dataclasses.replace(one, block=block)


def keeps_size(layer: nn.Module) -> bool:
    """Whether a convolution has an identity of its shape: odd kernel, stride 1, as much padding as needed."""
    assert isinstance(layer, CONVOLUTIONS)
    kernels, padding = layer.kernel_size, layer.padding
    same = padding == "same" or tuple(padding) == tuple(k // 2 for k in kernels)
    odd = all(k % 2 for k in kernels)
    return same and odd and all(n == 1 for n in (*layer.stride, *layer.dilation)) and layer.groups == 1


def with_reason(by_name: dict[str, nn.Module], one: Spot, calls: Counter[str], shared: set[str]) -> Spot:
    """The spot, with the reason if its layers are such that they cannot be multiplied."""
    if one.reason or not (one.into or one.block):
        return one
    used = [one.layer, *one.norms, *([one.into] if one.into else []), *([one.bend.name] if one.bend else [])]
    why = next((why for name in used if (why := unfit(name, by_name[name], calls, shared))), "")
    if not why and one.into:
        why = why_apart(by_name[one.layer], by_name[one.into])
    return dataclasses.replace(one, reason=why) if why else one


def unfit(name: str, module: nn.Module, calls: Counter[str], shared: set[str]) -> str:
    """Why a layer, norm or activation cannot be taken away."""
    if calls[name] > 1:
        return f"{name} is used {calls[name]} times"
    if computed(module):
        return f"{computed(module)[0]} of {name} is computed from other parameters"
    if is_frozen(module):
        return f"{name} has frozen parameters"
    if name in shared:
        return f"{name} shares its weight with another module"
    if isinstance(module, CONVOLUTIONS) and module.groups != 1:
        return f"{name} is a convolution with groups={module.groups}"
    weights = [n for n, _ in module.named_parameters(recurse=False)]
    if "weight" in weights and not isinstance(module, KINDS) and not hasattr(module, "running_mean"):
        return f"{name} is a {type(module).__name__}"
    return ""


def why_apart(first: nn.Module, second: nn.Module) -> str:
    """Why two layers cannot be multiplied."""
    if isinstance(first, nn.Linear) != isinstance(second, nn.Linear):
        return f"a {type(first).__name__} and a {type(second).__name__} do not multiply"
    if not isinstance(first, CONVOLUTIONS) or not isinstance(second, CONVOLUTIONS):
        return ""
    if any(n != 1 for n in (*first.dilation, *second.dilation)):
        return "its convolutions are dilated"
    if second.padding != "valid" and any(p != 0 for p in second.padding):
        return "the next convolution pads what it gets: the border would differ"
    if isinstance(first.padding, str) or first.padding_mode != "zeros":
        return f"its convolution pads by {first.padding!r} ({first.padding_mode})"
    return ""
