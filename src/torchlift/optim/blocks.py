"""Blocks: the tensors of a parameter group, batched so that an update runs at the speed of memory.

An update of adaptive type reads and writes four tensors per parameter (w, g, m, v) in about ten passes.
Small tensors are therefore taken together (one call of a foreach operation for many), and on the CPU large
ones are cut into pieces that stay in the cache between passes. A block of one tensor keeps its shape; the
scratch tensors of a block of many are flat.
"""
# The foreach operations are what torch's own optimizers are written in; torch has no public name for them.
# pyright: reportPrivateUsage=false

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

CPU_BLOCK = 1 << 19
"""Entries per block on the CPU: large enough to hide the cost of a call, small enough for the cache."""


class Slot(NamedTuple):
    """One parameter with its gradient, its two moments, and the number t of the step being taken."""

    param: Tensor
    grad: Tensor
    first: Tensor
    second: Tensor
    step: float | Tensor


class TensorBlock:
    """Tensors that take the same step t together: weights w, gradients g, moments m and v."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.params = [slot.param for slot in slots]
        self.grads = [slot.grad for slot in slots]
        self.firsts = [slot.first for slot in slots]
        self.seconds = [slot.second for slot in slots]
        self.step = slots[0].step

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.params[0].device

    @property
    def started(self) -> float | Tensor:
        """0 at the first step of these tensors, 1 later."""
        return (self.step - 1).clamp(max=1) if isinstance(self.step, Tensor) else min(self.step - 1, 1)

    def negate(self) -> None:
        """g ← −g, without touching the gradients themselves."""
        self.grads = list(torch._foreach_neg(self.grads))

    def couple(self, decay: float, *, alive_only: bool = False) -> None:
        """g ← g + λ·w, the coupled weight decay; only where g or v is not zero if ``alive_only``."""
        if not alive_only:
            self.grads = list(torch._foreach_add(self.grads, self.params, alpha=decay))
            return
        alive = torch._foreach_mul(self.grads, self.grads)
        torch._foreach_add_(alive, self.seconds)
        torch._foreach_sign_(alive)
        self.grads = list(torch._foreach_addcmul(self.grads, alive, self.params, decay))

    def accumulate_first(self, beta: float) -> None:
        """m ← β1·m + (1 − β1)·g."""
        torch._foreach_lerp_(self.firsts, self.grads, 1 - beta)

    def accumulate_second(self, beta: float) -> None:
        """v ← β2·v + (1 − β2)·g²."""
        torch._foreach_mul_(self.seconds, as_factor(beta, self.seconds))
        torch._foreach_addcmul_(self.seconds, self.grads, self.grads, 1 - beta)

    def second_root(self, *, skip_dead: bool) -> Tensor:
        """√v as scratch; infinite where v = 0 if ``skip_dead``, so that a rate 1/√v is 0 there."""
        second = gather(self.seconds)
        own = second is not self.seconds[0]
        if skip_dead:
            return (torch.threshold_ if own else torch.threshold)(second, 0.0, math.inf).sqrt_()
        return second.sqrt_() if own else second.sqrt()

    def first_sign(self) -> Tensor:
        """The sign of m as scratch: 0 where nothing moves."""
        firsts = [m.detach() for m in self.firsts]
        return gather(firsts).sign_() if len(firsts) > 1 else firsts[0].sign()

    def dead(self) -> bool:
        """Whether an entry has never lived (v = 0)."""
        return not all(bool(second.all()) for second in self.seconds)

    def idle(self) -> bool:
        """Whether an entry that lived (v > 0) has come to rest (m = 0)."""
        pairs = zip(self.firsts, self.seconds, strict=True)
        return any(bool(((first == 0) & (second > 0)).any()) for first, second in pairs)

    def shrink(self, amount: float | Tensor) -> None:
        """w ← (1 − amount)·w, the decoupled weight decay."""
        if isinstance(amount, Tensor):
            torch._foreach_mul_(self.params, (1 - amount).reshape(()))
        elif amount:
            torch._foreach_mul_(self.params, 1 - amount)

    def move(self, denominators: Tensor, rate: float | Tensor) -> None:
        """w ← w − rate·m/denominators, for a scratch tensor of this block."""
        if isinstance(rate, Tensor):
            denominators, rate = denominators / rate.to(self.device), 1.0
        firsts = [m.clone() if m.requires_grad else m for m in self.firsts]  # m will change, a graph must not
        torch._foreach_addcdiv_(self.params, firsts, unflatten(denominators, self.params), -rate)


def as_factor(number: float, tensors: Sequence[Tensor]) -> float | Tensor:
    """A number for a foreach operation; on the CPU as a tensor, else it is made into one for every tensor."""
    like, many = tensors[0], len(tensors) > 1
    exact = like.dtype in (torch.float32, torch.float64)  # 0.999 in bfloat16 is 1
    return torch.tensor(number, dtype=like.dtype) if many and exact and like.device.type == "cpu" else number


def gather(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors of a block as one: itself if it is one (a copy for a graph), else a flat copy."""
    if len(tensors) > 1:
        return _flatten_dense_tensors(tensors)
    return tensors[0].clone() if tensors[0].requires_grad else tensors[0]


def unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The inverse of :func:`gather`, as views."""
    return [flat] if len(like) == 1 else list(_unflatten_dense_tensors(flat, like))


def blocks(slots: Sequence[Slot], *, batch: bool) -> Iterator[TensorBlock]:
    """Cut ``slots`` into blocks; without ``batch``, or where t is a tensor, one tensor makes one block."""
    together: dict[tuple[torch.device, torch.dtype, float], list[Slot]] = defaultdict(list)
    for slot in slots:
        if batch and isinstance(slot.step, float):
            together[slot.param.device, slot.param.dtype, slot.step].append(slot)
        else:
            yield TensorBlock([slot])
    for (device, _, _), alike in together.items():
        if device.type == "cpu":
            yield from _cache_sized(alike)
        else:
            yield TensorBlock(alike)


def _cache_sized(slots: Sequence[Slot]) -> Iterator[TensorBlock]:
    waiting: list[Slot] = []
    size = 0
    for slot in slots:
        if slot.param.numel() >= CPU_BLOCK:
            yield from (TensorBlock([piece]) for piece in _pieces(slot))
            continue
        if size + slot.param.numel() > CPU_BLOCK:
            yield TensorBlock(waiting)
            waiting, size = [], 0
        waiting.append(slot)
        size += slot.param.numel()
    if waiting:
        yield TensorBlock(waiting)


def _pieces(slot: Slot) -> Iterator[Slot]:
    """A large tensor as pieces of :data:`CPU_BLOCK` entries in memory order; whole if memory has gaps."""
    strides = slot.param.stride()
    order = sorted(range(len(strides)), key=lambda axis: strides[axis], reverse=True)
    ordered = [tensor.permute(order) for tensor in (slot.param, slot.grad, slot.first, slot.second)]
    if not all(tensor.is_contiguous() for tensor in ordered):
        yield slot
        return
    for param, grad, first, second in zip(*(t.view(-1).split(CPU_BLOCK) for t in ordered), strict=True):
        yield Slot(param, grad, first, second, slot.step)
