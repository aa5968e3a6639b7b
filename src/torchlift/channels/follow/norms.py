"""Rules of norms: by channel, by group, and over all channels; root-mean-square norms too."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlift.channels.follow.constants import VARIES
from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import Norm, SliceNormed, rule, tensors_in
from torchlift.channels.layers import CountedGroupNorm, CountedLayerNorm, CountedResponseNorm


@rule(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit",
    "cudnn_batch_norm",
)
def by_channel(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Each channel by itself: weight, bias and statistics go with it."""
    x = args[0]
    shape = [1, x.shape[1], *(1,) * (x.ndim - 2)]
    labeled = f.look(x)
    why = "differs from place to place in a map"
    cores = [c for core in labeled.cores if (c := f.unmixed(core, {0, *range(2, x.ndim)}, why)) is not None]
    affine = [f.look(tensor) for tensor in tensors_in(args[1:5])]
    own = [[core.reshape(shape) for core in one.cores] for one in affine]
    f.put_all(out)
    if all(len(each) == 1 for each in (cores, *own)) and varying(cores[0]) == {1}:
        for each in own:
            f.labels.unite(cores[0], each[0])
        f.put(out[0], own[0] if own else cores)  # labels of weights are never 0
        return
    operands = [(each, shape, one.wild) for each, one in zip(own, affine, strict=True)]
    f.put(out[0], f.merge(shape, [(cores, shape, labeled.wild), *operands]))


@rule("native_group_norm")
def by_group(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Channels of a group are averaged together: whole groups go; of one group, channels that are zero."""
    x, groups = args[0], int(args[6])
    shape = [1, x.shape[1], *(1,) * (x.ndim - 2)]
    labeled = f.look(x)
    why = "GroupNorm mixes the places of a map"
    cores = [c for core in labeled.cores if (c := f.unmixed(core, set(range(2, x.ndim)), why)) is not None]
    operands = [(cores, shape, labeled.wild)]
    for tensor in tensors_in(args[1:3]):
        operands.append(([core.reshape(shape) for core in f.look(tensor).cores], shape, False))
    merged = f.merge(shape, operands)
    for core in merged:
        if varying(core) == {1}:
            rows = core.reshape(groups, -1)
            if groups > 1:
                f.labels.unite(rows, rows[:, :1])
            else:
                kind = "counted" if func is None else "group"
                f.norms.append(Norm(f.module, kind, core.flatten()))
                f.readers.averages(f, core.flatten(), x, 1)
    f.put_all(out)
    f.put(out[0], merged)


@rule("_weight_norm_interface")
def by_slice(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """g · v / ‖v‖ for each slice of a dimension: g goes with it, and takes up what other cuts take of ‖v‖."""
    v, g, dim = args[0], args[1], int(args[2]) if len(args) > 2 else 0
    f.put_all(out, pure=True)
    if id(v) not in f.names or id(g) not in f.names:
        f.give_up([v, g], "a norm of weights that are computed")
        return
    f.scaled.append(SliceNormed(f.names[id(g)], f.names[id(v)], dim))
    ours, theirs = (
        [core for core in f.look(t).cores if varying(core) == {axis}] for t, axis in ((v, dim), (g, dim))
    )
    for core, other in zip(ours, theirs, strict=False):
        f.labels.unite(core.flatten(), other.flatten())
    f.put(out[0], f.look(v).cores, pure=True)


@rule("native_layer_norm")
def over_features(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """LayerNorm."""
    f.put_all(out)
    f.put(out[0], averaged(f, "layer", args[0], list(args[2:4]), len(args[1])))


def averaged(
    f: Follower, kind: str, x: Tensor, affine: Sequence[Tensor | None], count: int = 1
) -> list[Tensor]:
    """A norm over the last dimensions; channels go with its weight and bias if what they carry is zero."""
    labeled, last = f.look(x), set(range(x.ndim - count, x.ndim))
    kept: list[Tensor] = []
    for core in labeled.cores:
        if varying(core) == {x.ndim - 1} and count == 1:
            labels = core.flatten()
            f.norms.append(Norm(f.module, kind, labels))
            f.readers.averages(f, labels, x, -1)
            kept.append(core)
        else:
            kept_core = f.unmixed(core, last, f"a norm over {count} dimensions mixes the channels")
            kept += [] if kept_core is None else [kept_core]
    operands: list[tuple[list[Tensor], Sequence[int], bool]] = [(kept, x.shape, labeled.wild)]
    for tensor in affine:
        if tensor is not None:
            operands.append((f.look(tensor).cores, tensor.shape, False))
    return f.merge(x.shape, operands)


RmsKind = Literal["rms", "rms+1"]

EPS = ("eps", "variance_epsilon", "epsilon", "norm_eps")


@dataclasses.dataclass(frozen=True)
class NormFields:
    """How such a module names its ε."""

    eps: str

    def value(self, module: nn.Module, like: Tensor) -> float:
        """ε; torch takes that of the number type where none is given."""
        eps = getattr(module, self.eps)
        return torch.finfo(like.dtype).eps if eps is None else float(eps)

    def kind(self, module: Any, x: Tensor, out: Tensor) -> RmsKind | None:
        """``"rms"`` for x̂ w, ``"rms+1"`` for x̂ (1 + w) with x̂ = x / √(mean x² + ε); None for neither."""
        if out.shape != x.shape or x.shape[-1:] != module.weight.shape:
            return None
        scaled = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + self.value(module, x))
        weight = module.weight.detach().double()
        kinds: tuple[tuple[RmsKind, Tensor], ...] = ("rms", weight), ("rms+1", 1 + weight)
        for kind, factor in kinds:
            if torch.allclose(scaled * factor, out.double(), rtol=1e-4, atol=1e-5):
                return kind
        return None


def is_response_norm(module: nn.Module) -> bool:
    """Whether a module may be a global response norm: a weight and a bias of shape (1, 1, 1, channels)."""
    own = {name: p.shape for name, p in module.named_parameters(recurse=False)}
    shapes = [shape[:-1] for shape in own.values()]
    return own.keys() == {"weight", "bias"} and shapes == [torch.Size([1, 1, 1])] * 2


def counts(module: nn.Module) -> bool:
    """Whether a norm is looked at as a whole, whatever it is made of."""
    counted = isinstance(module, CountedLayerNorm | CountedGroupNorm)
    return counted or is_response_norm(module) or rms_form(module) is not None


def rms_form(module: nn.Module) -> NormFields | None:
    """The form of a module that may be such a norm: one vector ``weight``, an ε, no children."""
    own = dict(module.named_parameters(recurse=False))
    others = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)  # pyright: ignore[reportPrivateUsage]
    if isinstance(module, others) or set(own) != {"weight"} or own["weight"].ndim != 1:
        return None
    if any(True for _ in module.children()):
        return None
    name = next((eps for eps in EPS if hasattr(module, eps)), None)
    return None if name is None else NormFields(name)


def scaled_rms(weight: Tensor, eps: float, before: int, after: int, kind: RmsKind) -> tuple[Tensor, float]:
    """Weight and ε that give the same output from ``after`` of ``before`` features, the others being zero.

    Σx²/D + ε = (d/D)(Σx²/d + ε·D/d), hence w ← w·√(D/d) and ε ← ε·D/d; of 1 + w the sum is scaled.
    """
    ratio = before / after
    factor = ratio**0.5
    return (weight * factor if kind == "rms" else (1 + weight) * factor - 1), eps * ratio


def through_norm(f: Follower, module: Any, x: Tensor, out: Tensor) -> None:
    """Labels and grades through a module that is x / √(mean x² + ε) · w, if it is, or a layer norm that
    counts."""
    if isinstance(module, CountedGroupNorm) or getattr(module, "channels_first", False):
        by_group(f, None, [x, module.weight, module.bias, 0, 0, 0, 1], {}, [out])
        return
    if is_response_norm(module):
        counted = isinstance(module, CountedResponseNorm)
        count = module.count if counted else x.shape[-1]
        if not torch.allclose(CountedResponseNorm.of(module, count)(x), out, rtol=1e-4, atol=1e-5):
            f.give_up([x, module.weight, module.bias], f"{type(module).__name__} is a norm of unknown form")
            f.put(out, [])
        else:
            f.put(out, averaged(f, "counted" if counted else "response", x, [module.weight, module.bias]))
        return
    form = rms_form(module)
    if form is None:
        f.put(out, averaged(f, "counted", x, [module.weight, module.bias]))
        return
    kind = form.kind(module, x.detach(), out.detach())
    if kind is None:
        f.give_up([x, module.weight], f"{type(module).__name__} is a norm of unknown form")
        f.put(out, [])
        return
    f.put(out, averaged(f, kind, x, [module.weight]))
    if f.readers.values:
        grade = f.constants.of(x)
        zero = torch.where(f.constants.zero(x, grade), grade, VARIES)
        f.constants.put(out, zero)
