# pyright: reportPrivateUsage=false
"""Weights of a file into a model of the user's own class: names strictly, shapes as the file has them.

Layers become as narrow as their weights say, never wider than the given model has them: the file cannot make
a call of it more expensive. Everything is checked before anything is changed.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.follow.norms import is_response_norm, rms_form
from torchlift.channels.layers import CountedGroupNorm, CountedLayerNorm, CountedResponseNorm
from torchlift.channels.resizing import CONV, TRANSPOSED, countable, refit_attention, resize
from torchlift.channels.surgery import counted_norm
from torchlift.core.weights import refresh_flat_weights
from torchlift.packed.budget import PackedError
from torchlift.packed.layers import arguments_of, build, kind_name
from torchlift.packed.tensors import Head

SOME = 3


def slots_of(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """The owner and the name there of every tensor of a model's state."""
    modules = dict(model.named_modules(remove_duplicate=False))
    return {
        name: (modules[name.rpartition(".")[0]], name.rpartition(".")[2])
        for name, value in model.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor)
    }


COUNTED = (CountedLayerNorm, CountedGroupNorm, CountedResponseNorm)
COUNT, GROUPS = "count", "groups"


def sizes_of(model: nn.Module) -> dict[str, dict[str, int | float]]:
    """Numbers that a cut may change: heads, widths and the sizes of parts in a user's own modules; how many
    features a norm still counts; the groups of a convolution; the ε of a root-mean-square norm."""
    sizes: dict[str, dict[str, int | float]] = {}
    for name, module in model.named_modules():
        own: dict[str, int | float] = {}
        if isinstance(module, COUNTED):
            own = {COUNT: module.count}
        elif isinstance(module, (*CONV, *TRANSPOSED)) and module.groups > 1:
            own = {GROUPS: module.groups}
        elif kind_name(module) is None:
            own = {key: value for key, value in vars(module).items() if type(value) is int and countable(key)}
            if (form := rms_form(module)) is not None and type(eps := getattr(module, form.eps)) is float:
                own[form.eps] = eps
        if own:
            sizes[name] = own
    return sizes


def features(norm: nn.Module) -> int:
    """How many features a norm over all of them has; 0 where a module is none that can count more."""
    if isinstance(norm, nn.LayerNorm):
        return norm.normalized_shape[0] if len(norm.normalized_shape) == 1 else 0
    if isinstance(norm, nn.GroupNorm):
        return norm.num_channels if norm.num_groups == 1 else 0
    return norm.get_parameter("weight").shape[-1] if is_response_norm(norm) else 0


def some(names: Any) -> str:
    """The first few of many names."""
    names = sorted(names)
    return ", ".join(repr(name) for name in names[:SOME]) + (" …" if len(names) > SOME else "")


class IntoModel:
    """A model to be filled: what it has, and whether the file fits."""

    def __init__(self, model: nn.Module, names: list[str], numbers: list[int], sizes: Any) -> None:
        try:
            plain_state(model)
        except ValueError as error:
            raise PackedError(f"into=: {error}.") from error
        self.model, self.slots = model, slots_of(model)
        self.check_names(names)
        self.named = list(zip(names, numbers, strict=True))
        self.sizes = self.check_sizes(sizes)
        self.counts = self.check_counts(sizes)
        self.groups = self.check_groups(sizes)
        self.check_ties()

    def check_names(self, names: list[str]) -> None:
        """Names must be the same, all of them."""
        missing, unknown = set(self.slots) - set(names), set(names) - set(self.slots)
        if len(set(names)) != len(names):
            raise PackedError("the file names a tensor twice.")
        if missing:
            raise PackedError(
                f"the file has no {some(missing)}, which into= has: give an instance of its own class."
            )
        if unknown:
            raise PackedError(
                f"into= has no {some(unknown)}, which the file has: give an instance of its own class."
            )

    def check_ties(self) -> None:
        """A tensor that stands in several places of the model must be one of the file too."""
        numbers: dict[int, int] = {}
        for name, number in self.named:
            owner, leaf = self.slots[name]
            if numbers.setdefault(id(getattr(owner, leaf)), number) != number:
                raise PackedError(f"{name!r} is tied in into=, and not in the file.")

    def check_counts(self, sizes: Any) -> dict[str, int]:
        """Norms that lost features may go on counting as many as they have here, and no more."""
        counts: dict[str, int] = {}
        for name, module in self.model.named_modules():
            own = sizes.get(name) if type(sizes) is dict else None
            count = own.get(COUNT) if type(own) is dict and not isinstance(module, COUNTED) else None
            if name and type(count) is int and (now := features(module)):
                if not 0 < count <= now:
                    raise PackedError(f"{name} counts {count} features in the file and has {now} in into=.")
                counts[name] = count
        return counts

    def check_groups(self, sizes: Any) -> dict[nn.Module, int]:
        """Convolutions may have fewer groups."""
        groups_by_module: dict[nn.Module, int] = {}
        for name, module in self.model.named_modules():
            own = sizes.get(name) if type(sizes) is dict else None
            groups = own.get(GROUPS) if type(own) is dict else None
            if isinstance(module, (*CONV, *TRANSPOSED)) and type(groups) is int:
                if not 0 < groups <= module.groups:
                    raise PackedError(f"{name} has {groups} groups in the file and {module.groups} in into=.")
                groups_by_module[module] = groups
        return groups_by_module

    def check_sizes(self, sizes: Any) -> list[tuple[nn.Module, str, int | float]]:
        """Whole numbers of modules may become smaller, the ε of a norm another one, nothing else."""
        modules, changes = dict(self.model.named_modules()), list[tuple[nn.Module, str, int | float]]()
        for name, own in sizes.items() if type(sizes) is dict else ():
            for key, value in own.items() if type(own) is dict and name in modules else ():
                now = vars(modules[name]).get(key)
                form = rms_form(modules[name])
                if form is not None and key == form.eps and type(now) is float and type(value) is float:
                    if not (value >= 0 and math.isfinite(value)):
                        raise PackedError(f"{key} of {name} is {value} in the file.")
                    changes.append((modules[name], key, value))
                if type(now) is int and countable(key) and type(value) is int and value != now:
                    if not 0 < value <= now:
                        raise PackedError(
                            f"{key} is {value} in the file and {now} in into=: at least as wide."
                        )
                    changes.append((modules[name], key, value))
        return changes

    def check(self, number: int, head: Head) -> None:
        """A tensor of the file must fit where it goes: as many dimensions, none of them longer."""
        for name, own in self.named:
            if own == number:
                owner, leaf = self.slots[name]
                now: Tensor = getattr(owner, leaf)
                wider = any(new > old for new, old in zip(head.shape, now.shape, strict=False))
                if len(head.shape) != now.ndim or wider:
                    raise PackedError(
                        f"{name!r} is {tuple(head.shape)} in the file and {tuple(now.shape)} in into=: "
                        "make it at least as wide."
                    )
                if head.kind.is_floating_point != now.dtype.is_floating_point:
                    raise PackedError(f"{name!r} is {head.kind} in the file and {now.dtype} in into=.")

    def fill(self, values: list[Tensor], trained: list[bool]) -> nn.Module:
        """The model, with these tensors in it."""
        parameters: dict[int, nn.Parameter] = {}
        changed: list[nn.Module] = []
        for name, number in self.named:
            owner, leaf = self.slots[name]
            now, value = getattr(owner, leaf), values[number]
            if now.shape != value.shape:
                changed.append(owner)
            value = value.to(now.device)
            if isinstance(now, nn.Parameter):
                if number not in parameters:
                    now.data, now.grad = value, None
                    now.requires_grad_(trained[number] and (value.is_floating_point() or value.is_complex()))
                    parameters[number] = now
                owner._parameters[leaf] = parameters[number]
            else:
                owner._buffers[leaf] = value
        for owner in changed:
            resize(owner, groups=self.groups.get(owner))
        for module, key, value in self.sizes:
            setattr(module, key, value)
        for name, count in self.counts.items():
            self.model.set_submodule(name, counted_norm(self.model.get_submodule(name), count))
        refit_attention(self.model)
        refresh_flat_weights(self.model)
        left = set(self.model.modules())  # attention with fewer heads is another module by now
        for module in changed:
            if module in left:
                check_layer_sizes(module)
        return self.model


def check_layer_sizes(module: nn.Module) -> None:
    """Raise for a layer of torch whose weights are not of the shapes that its sizes ask for."""
    name = kind_name(module)
    if name is None:
        return
    twin = build(name, arguments_of(module, name))
    for (key, tensor), (_, other) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        if tensor.shape != other.shape:
            raise PackedError(f"{key} of a {name} has a shape that does not fit its other weights.")


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """A model's state as plain tensors by name, or why it is none."""
    state: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if reason := getattr(type(module), "unpackable", ""):
            raise ValueError(f"{name or 'the model'} is a {type(module).__name__}: {reason}")
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is not a tensor")
        if type(value) not in (Tensor, nn.Parameter) or value.layout != torch.strided or value.is_quantized:
            raise ValueError(f"{name} is not a plain dense tensor ({type(value).__name__})")
        if value.device.type == "meta":
            raise ValueError(f"{name} has no memory: it is on the meta device")
        state[name] = value
    return state
