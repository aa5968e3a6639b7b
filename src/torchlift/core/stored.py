"""What a projection knows of a weight, kept beside it: its grid and its mask.

    weight = step · levels  exactly, in the weight's own number type;    weight = 0 where not kept

``step`` has one entry for all of the weight, one per row, or one per block: as many dimensions as the weight,
each 1 or a divisor of the weight's. ``kept`` is the mask. Both are buffers of the module that owns the weight
and are not part of its state dict: copies, moves and processes carry them along, the state dict stays that of
the plain model. Levels are not stored: they are ``round(weight / step)``. A record that no longer holds,
because somebody changed the weight, is dropped with a warning.
"""

import dataclasses
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from torchlift.errors import TorchliftError

STEP, KEPT = "_step_of_{}", "_kept_of_{}"


@dataclasses.dataclass(frozen=True)
class Stored:
    """The record of one weight; None: not on a grid, not masked."""

    levels: Tensor | None = None
    """Whole numbers, of the weight's shape."""
    step: Tensor | None = None
    kept: Tensor | None = None
    """True where the weight may differ from zero."""

    @property
    def bits(self) -> int | None:
        """The least bits of signed whole numbers that hold all levels."""
        if self.levels is None:
            return None
        return 1 + int(self.levels.abs().max()).bit_length() if self.levels.numel() else 1


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module a dotted parameter name belongs to, and the name there."""
    owner, _, leaf = name.rpartition(".")
    return module.get_submodule(owner), leaf


def spread(step: Tensor, shape: torch.Size) -> Tensor:
    """A step for every entry of a weight of this shape, as a view where one can be had."""
    step = step if step.ndim == len(shape) else step.reshape(*step.shape, *[1] * (len(shape) - step.ndim))
    for dim, (has, wants) in enumerate(zip(step.shape, shape, strict=True)):
        if has not in (1, wants):
            if not has or wants % has:
                raise TorchliftError(
                    f"a step of shape {tuple(step.shape)} does not fit a weight of {tuple(shape)}."
                )
            step = step.repeat_interleave(wants // has, dim)
    return step.expand(shape)


def levels_of(weight: Tensor, step: Tensor) -> Tensor:
    """round(weight / step), as int32; 0 where the step is 0."""
    wide = spread(step, weight.shape).double()
    return torch.where(wide == 0, 0.0, weight.detach().double() / wide).round().to(torch.int32)


def on_grid(levels: Tensor, step: Tensor, dtype: torch.dtype) -> Tensor:
    """step · levels in a number type; zeros are positive."""
    return (spread(step, levels.shape).double() * levels).to(dtype) + 0.0


def store(
    module: nn.Module,
    name: str,
    *,
    step: Tensor | None = None,
    levels: Tensor | None = None,
    kept: Tensor | None = None,
) -> None:
    """Record a weight's grid and mask, and write the weight where ``levels`` or ``kept`` say what it is.

    Without ``levels`` the weight must lie on the grid already; a step that does not fit is an error.
    What is not given leaves an earlier record as it is.
    """
    owner, leaf = owner_of(module, name)
    weight: Tensor = getattr(owner, leaf)
    with torch.no_grad():
        if kept is not None:
            weight.mul_(kept.to(weight.device, weight.dtype)).add_(0.0)
        if step is not None:
            step = step.detach().to(weight.device, weight.dtype)
            whole = levels_of(weight, step) if levels is None else levels.to(weight.device)
            value = on_grid(whole, step, weight.dtype)
            if levels is not None:
                weight.copy_(value)
            elif not torch.equal(value, weight.detach()):
                raise TorchliftError(f"{name!r} is not on the grid of the step that is recorded for it.")
    if step is not None:
        owner.register_buffer(STEP.format(leaf), step.clone(), persistent=False)
    if kept is not None:
        owner.register_buffer(
            KEPT.format(leaf), kept.detach().to(weight.device, torch.bool).clone(), persistent=False
        )


def forget(module: nn.Module, *names: str) -> None:
    """Drop the records of these weights, or all there are."""
    for name in names or [name for name, _, _ in recorded(module)]:
        owner, leaf = owner_of(module, name)
        for form in (STEP, KEPT):
            if form.format(leaf) in owner._buffers:
                delattr(owner, form.format(leaf))


def recorded(module: nn.Module) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    """Name, step and mask of every weight with a record, unchecked; a tied weight under each of its names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    records: dict[int, tuple[Tensor | None, Tensor | None]] = {}
    for name, weight in named.items():
        owner, leaf = owner_of(module, name)
        step, kept = (owner._buffers.get(form.format(leaf)) for form in (STEP, KEPT))
        if step is not None or kept is not None:
            records.setdefault(id(weight), (step, kept))
    for name, weight in named.items():
        if id(weight) in records:
            yield (name, *records[id(weight)])


def stored(module: nn.Module) -> dict[str, Stored]:
    """The records of a model's weights that hold; one that does not is dropped, with a warning."""
    records: dict[str, Stored] = {}
    broken: list[str] = []
    for name, step, kept in list(recorded(module)):
        weight = module.get_parameter(name).detach()
        levels = None if step is None else levels_of(weight, step)
        if (kept is not None and bool(weight[~kept].any())) or (
            levels is not None
            and step is not None
            and not torch.equal(on_grid(levels, step, weight.dtype), weight)
        ):
            broken.append(name)
        else:
            records[name] = Stored(levels, step, kept)
    if broken:
        forget(module, *broken)
        warnings.warn(
            f"{', '.join(broken)}: changed since it was pruned or quantized: grid and mask are forgotten "
            "(tl.constrain after each step holds them).",
            stacklevel=2,
        )
    return records


@torch.no_grad()
def scale_rows(module: nn.Module, name: str, factor: Tensor) -> None:
    """weight[r] ← factor[r] · weight[r]; on a grid, the step takes the factor and the levels stay."""
    owner, leaf = owner_of(module, name)
    weight: Tensor = getattr(owner, leaf)
    factor = factor.reshape(-1, *[1] * (weight.ndim - 1)).to(weight)
    step = owner._buffers.get(STEP.format(leaf))
    if step is None:
        weight.mul_(factor)
        return
    levels = levels_of(weight, step)
    step = step if step.ndim == weight.ndim else step.reshape(*step.shape, *[1] * (weight.ndim - step.ndim))
    step = step * factor
    weight.copy_(on_grid(levels, step, weight.dtype))
    owner.register_buffer(STEP.format(leaf), step, persistent=False)
