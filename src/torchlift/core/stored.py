"""What a projection knows of a weight, kept beside it: its grid and its mask.

    weight = step · levels  exactly, in the weight's own number type;    weight = 0 where not kept

``step`` has one entry for all of the weight, one per row, or one per block: as many dimensions as the weight,
each 1 or a divisor of the weight's. ``kept`` is the mask. Both are buffers of the module that owns the weight
and are not part of its state dict: copies, moves and processes carry them along, the state dict stays that of
the plain model. Levels are not stored: they are ``round(weight / step)``. A record that no longer holds,
because somebody changed the weight, is dropped with a warning.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Generator, Iterator, Mapping

import torch
from torch import Tensor, nn

from torchlift.errors import TorchliftError

STEP, KEPT = "_step_of_{}", "_kept_of_{}"
PREFIXES = tuple(form.format("") for form in (STEP, KEPT))
"""How the names of the buffers begin."""


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
        if self.levels is None or self.levels.is_meta:
            return None
        if not self.levels.numel():
            return 1
        low, high = int(self.levels.min()), int(self.levels.max())
        return 1 + max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0)

    @property
    def precision(self) -> Tensor | None:
        """The bits of every entry: p for an odd multiple of 2^(P − p), P the bits of the largest; 0 for 0.

        A level says its own precision: it is such a multiple for one p only.
        """
        if self.levels is None:
            return None
        size = self.levels.abs()
        most = int(size.max()).bit_length() if size.numel() else 0
        low = torch.log2((size & -size).clamp(min=1).double()).to(torch.int16)
        return torch.where(size > 0, most - low, 0).to(torch.int16)


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module a dotted parameter name belongs to, and the name there."""
    owner, _, leaf = name.rpartition(".")
    return module.get_submodule(owner), leaf


def full_rank(step: Tensor, ndim: int) -> Tensor:
    """A step with as many dimensions as its weight: missing ones are the last."""
    return step if step.ndim == ndim else step.reshape(*step.shape, *[1] * (ndim - step.ndim))


def spread_step(step: Tensor, shape: torch.Size) -> Tensor:
    """A step for every entry of a weight of this shape, as a view where that is possible."""
    if not step_fits(step, shape):
        raise TorchliftError(f"a step of shape {tuple(step.shape)} does not fit a weight of {tuple(shape)}.")
    step = full_rank(step, len(shape))
    for dim, (has, wants) in enumerate(zip(step.shape, shape, strict=True)):
        if has not in (1, wants):
            step = step.repeat_interleave(wants // has, dim)
    return step.expand(shape)


def step_fits(step: Tensor, shape: torch.Size) -> bool:
    """Whether every dimension of a step is 1 or divides the weight's."""
    if step.ndim > len(shape):
        return False
    pairs = zip(full_rank(step, len(shape)).shape, shape, strict=True)
    return all(has in (1, wants) or (has > 0 and wants % has == 0) for has, wants in pairs)


def levels_of(weight: Tensor, step: Tensor) -> Tensor:
    """round(weight / step), as int32; 0 where the step is 0."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    unit = spread_step(step, weight.shape).to(wide)
    return torch.where(unit == 0, 0.0, weight.detach().to(wide) / unit).round().to(torch.int32)


def from_levels(levels: Tensor, step: Tensor, dtype: torch.dtype) -> Tensor:
    """step · levels in a number type; zeros are positive."""
    wide = torch.promote_types(dtype, torch.float32)
    return (spread_step(step, levels.shape).to(wide) * levels).to(dtype) + 0.0


def weight_of(record: Stored, dtype: torch.dtype) -> Tensor:
    """The weight that a record of a grid stands for."""
    assert record.levels is not None
    assert record.step is not None
    return from_levels(record.levels, record.step, dtype)


def grid_holds(weight: Tensor, step: Tensor) -> bool:
    """Whether a weight is step · whole numbers, to the bit; on the meta device nobody knows, and it is."""
    if not step_fits(step, weight.shape):
        return False
    return weight.is_meta or torch.equal(
        from_levels(levels_of(weight, step), step, weight.dtype), weight.detach()
    )


def mask_holds(weight: Tensor, kept: Tensor) -> bool:
    """Whether a weight is zero where it is not kept."""
    if kept.shape != weight.shape:
        return False
    return weight.is_meta or not bool(weight.detach()[~kept].any())


@torch.no_grad()
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
    old_step, old_kept = record_of(module, name)
    new_step = None if step is None else full_rank(step.detach().to(weight), weight.ndim).clone()
    kept = old_kept if kept is None else kept.detach().to(weight.device, torch.bool)
    if new_step is not None and levels is not None:
        weight.copy_(from_levels(levels.to(weight.device), new_step, weight.dtype))
    if kept is not None:
        weight.masked_fill_(~kept.expand_as(weight), 0.0)
    if new_step is not None and not grid_holds(weight, new_step):
        raise TorchliftError(f"{name!r} is not on the grid of the step that is recorded for it.")
    step = old_step if new_step is None else new_step
    forget(module, name)
    if step is not None:
        owner.register_buffer(STEP.format(leaf), step, persistent=False)
    if kept is not None:
        owner.register_buffer(KEPT.format(leaf), kept.expand_as(weight).clone(), persistent=False)


def record_at(owner: nn.Module, leaf: str) -> tuple[Tensor | None, Tensor | None]:
    """Step and mask of a weight on the module that owns it."""
    own = dict(owner.named_buffers(recurse=False))
    return own.get(STEP.format(leaf)), own.get(KEPT.format(leaf))


def record_of(module: nn.Module, name: str) -> tuple[Tensor | None, Tensor | None]:
    """Step and mask of one weight, unchecked; of a tied one, under whichever of its names."""
    weight = module.get_parameter(name)
    for alias in aliases(module, weight):
        owner, leaf = owner_of(module, alias)
        step, kept = record_at(owner, leaf)
        if step is not None or kept is not None:
            return step, kept
    return None, None


def aliases(module: nn.Module, weight: Tensor) -> list[str]:
    """All names of a parameter: a tied one has several."""
    return [name for name, p in module.named_parameters(remove_duplicate=False) if p is weight]


def forget(module: nn.Module, *names: str, forms: tuple[str, ...] = (STEP, KEPT)) -> None:
    """Drop the records of these weights, or all there are; of ``forms``, only steps or only masks."""
    for name in names or [name for name, _, _ in recorded(module)]:
        for alias in aliases(module, module.get_parameter(name)):
            owner, leaf = owner_of(module, alias)
            for form in forms:
                if form.format(leaf) in dict(owner.named_buffers(recurse=False)):
                    delattr(owner, form.format(leaf))


def recorded(module: nn.Module) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    """Name, step and mask of every weight with a record, unchecked; a tied weight under each of its names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    records: dict[int, tuple[Tensor | None, Tensor | None]] = {}
    for name, weight in named.items():
        owner, leaf = owner_of(module, name)
        step, kept = record_at(owner, leaf)
        if step is not None or kept is not None:
            records.setdefault(id(weight), (step, kept))
    for name, weight in named.items():
        if id(weight) in records:
            yield (name, *records[id(weight)])


def stored(module: nn.Module) -> dict[str, Stored]:
    """The records of a model's weights that hold; one that does not is dropped, with a warning."""
    return {
        name: Stored(None if step is None else levels_of(module.get_parameter(name), step), step, kept)
        for name, step, kept in valid_records(module)
    }


def valid_records(module: nn.Module) -> list[tuple[str, Tensor | None, Tensor | None]]:
    """Name, step and mask of every weight whose record holds, without levels, which take as much as the
    weights; a record that does not hold is dropped, with a warning."""
    changed = [*drop_stale(module, STEP), *drop_stale(module, KEPT)]
    if changed:
        warnings.warn(
            f"{', '.join(dict.fromkeys(changed))}: changed since it was pruned or quantized, so that its "
            "grid or mask is forgotten (tl.constrain(model) after each step keeps them).",
            stacklevel=3,
        )
    return list(recorded(module))


def drop_stale(module: nn.Module, form: str = STEP) -> list[str]:
    """Drop, without a word, the steps (or masks) that no longer hold; the names of their weights.

    For whoever changes weights on purpose: a fit is expected to leave a grid.
    """
    stale: list[str] = []
    for name, step, kept in list(recorded(module)):
        weight = module.get_parameter(name)
        if form == STEP:
            holds = step is None or grid_holds(weight, step)
        else:
            holds = kept is None or mask_holds(weight, kept)
        if not holds:
            stale.append(name)
    if stale:
        forget(module, *stale, forms=(form,))
    return stale


def masks_of(module: nn.Module) -> dict[str, Tensor]:
    """The masks of all weights that have one with a hole."""
    masks = {name: kept for name, _, kept in recorded(module) if kept is not None}
    return {name: kept for name, kept in masks.items() if not bool(kept.all())}


def masked_weights(problem: nn.Module) -> list[tuple[nn.Parameter, Tensor]]:
    """The trainable weights with a mask, each once, with its mask in its own number type."""
    masked = {id(p := problem.get_parameter(name)): (p, kept) for name, kept in masks_of(problem).items()}
    return [(p, kept.to(p.dtype)) for p, kept in masked.values() if p.requires_grad]


@torch.no_grad()
def hold(module: nn.Module) -> None:
    """Bring trainable weights back to their masks and to the nearest level of their grids, in place."""
    for name, step, kept in recorded(module):
        weight = module.get_parameter(name)
        if not weight.requires_grad:
            continue
        if kept is not None:
            weight.masked_fill_(~kept, 0.0)
        if step is not None:
            weight.copy_(from_levels(levels_of(weight, step), step, weight.dtype))


@torch.no_grad()
def scale_rows(module: nn.Module, name: str, factor: Tensor) -> None:
    """weight[r] ← factor[r] · weight[r]; on a grid, the step takes the factor and the levels stay.

    A factor with as many dimensions as the weight need not be one of rows: it is spread over the weight.
    """
    owner, leaf = owner_of(module, name)
    weight: Tensor = getattr(owner, leaf)
    factor = full_rank(factor, weight.ndim).to(weight)
    step, _ = record_of(module, name)
    if step is None or not grid_holds(weight, step):
        weight.mul_(factor).add_(0.0)
        return
    levels = levels_of(weight, step)
    shape = torch.Size([max(pair) for pair in zip(step.shape, factor.shape, strict=True)])
    store(module, name, step=spread_step(step, shape) * factor, levels=levels)


def record_state(module: nn.Module) -> dict[str, Tensor]:
    """All records by the names of their buffers, those of lifted weights too: for a checkpoint."""
    buffers = module.named_buffers(remove_duplicate=False)
    return {name: b for name, b in buffers if name.rpartition(".")[2].startswith(PREFIXES)}


@contextlib.contextmanager
def without_records(module: nn.Module) -> Generator[None]:
    """A module without its records for a while: what writes all buffers of a module does not see them."""
    state = record_state(module)
    load_record_state(module, {})
    try:
        yield
    finally:
        load_record_state(module, state)


def load_record_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Have the records of :func:`record_state`, and no others."""
    for name in record_state(module):
        owner, leaf = owner_of(module, name)
        delattr(owner, leaf)
    for name, record in state.items():
        owner, leaf = owner_of(module, name)
        like = getattr(owner, leaf.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1]), None)
        device = like.device if isinstance(like, Tensor) else record.device
        owner.register_buffer(leaf, record.detach().to(device).clone(), persistent=False)
