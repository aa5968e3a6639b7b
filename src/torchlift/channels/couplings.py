"""Which channels stand and fall together, as found by following the model's computation."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor

from torchlift.channels.follow import Axis, Trace

Role = Literal["writes", "reads"]

HIDDEN = ("the places of a kernel stay",)
"""Reasons of dimensions nobody would call channels."""

TABLE = "a table of numbers writes these channels, no weight"


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """A weight's part in a coupling: slice ``index[k]`` of dimension ``dim`` is channel ``channel[k]``."""

    name: str
    dim: int
    size: int
    role: Role
    index: Tensor
    channel: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """Channels of one kind; each is cut in all members at once. ``roots`` are their labels in the trace."""

    name: str
    roots: Tensor
    members: tuple[Member, ...]
    blocked: str = ""
    """Why no channel may be cut, where that is clear at once."""

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.roots)

    def of(self, role: Role) -> Iterator[Member]:
        """The members of one role."""
        return (member for member in self.members if member.role == role)


def couplings(trace: Trace) -> list[Coupling]:
    """The couplings of a trace: channels that touch the same dimensions of the same weights."""
    parent, labeled_axes = trace.labels.parent, trace.labels.axes
    kinds = alike(trace)
    every = torch.cat([whole_numbers([]), *(own for _, _, own in kinds)])
    sizes = whole_numbers(len(own) for _, _, own in kinds)
    kind, number = torch.zeros_like(parent), torch.zeros_like(parent)
    kind[every] = torch.arange(len(kinds)).repeat_interleave(sizes)
    number[every] = torch.arange(len(every)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    kind, number = kind[parent], number[parent]
    shared = Counter(k for touched, _, _ in kinds for k in touched)
    read, summed = (
        within(labeled_axes, mask)
        for mask in (trace.readers.reader, trace.readers.reader & ~trace.readers.looked_up)
    )

    def member(k: int, count: int) -> Member:
        axis, role = labeled_axes[k], "reads" if summed[k] else "writes"
        mine = slice(axis.start, axis.start + axis.size)
        index, channel = torch.arange(axis.size), number[mine]
        if shared[k] > 1:
            index = (kind[mine] == count).nonzero().flatten()
            channel = channel[index]
        return Member(axis.name, axis.dim, axis.size, role, index, channel)

    gathered = [
        coupling([member(k, count) for k in touched], own, why, read=any(read[k] for k in touched))
        for count, (touched, why, own) in enumerate(kinds)
        if why not in HIDDEN
    ]
    written = [c for c in gathered if any(True for _ in c.of("writes"))]
    return [c if c.blocked or learned(c, trace) else dataclasses.replace(c, blocked=TABLE) for c in written]


def learned(coupling: Coupling, trace: Trace) -> bool:
    """Whether weights write the channels, not a table of numbers alone."""
    return any(member.name in trace.weights for member in coupling.of("writes"))


def alike(trace: Trace) -> list[tuple[tuple[int, ...], str, Tensor]]:
    """All channels, alike ones together: (numbers of the places they touch, why they stay, their labels)."""
    labeled_axes, frozen = trace.labels.axes, trace.labels.frozen()
    reasons = ["", *dict.fromkeys(frozen.values())]
    why = torch.zeros_like(trace.labels.parent)
    why[whole_numbers(frozen)] = whole_numbers(reasons.index(reason) for reason in frozen.values())
    pairs = (trace.labels.parent[1:] * len(labeled_axes) + owners(labeled_axes)).unique()
    touched = pairs % len(labeled_axes)
    roots, counts = (pairs // len(labeled_axes)).unique_consecutive(return_counts=True)
    first, why = counts.cumsum(0) - counts, why[roots]
    same = torch.zeros(len(roots), dtype=torch.bool)  # as the channel before
    same[1:] = (counts[1:] == counts[:-1]) & (why[1:] == why[:-1])
    other = touched != touched[(torch.arange(len(pairs)) - counts.repeat_interleave(counts)).clamp(min=0)]
    same[torch.arange(len(roots)).repeat_interleave(counts)[other]] = False
    starts = (~same).nonzero().flatten().tolist()
    kinds: dict[tuple[tuple[int, ...], str], list[Tensor]] = {}
    for start, end in itertools.pairwise([*starts, len(roots)]):
        own = tuple(touched[first[start] : first[start] + counts[start]].tolist())
        kinds.setdefault((own, reasons[int(why[start])]), []).append(roots[start:end])
    return [(own, reason, torch.cat(some)) for (own, reason), some in kinds.items()]


def coupling(members: list[Member], own: Tensor, why: str, *, read: bool) -> Coupling:
    """One coupling from its members and channels."""
    writer = next((m for m in members if m.role == "writes"), members[0])
    blocked = why or ("" if read else "nothing that reads these channels was seen")
    return Coupling(writer.name.rpartition(".")[0] or writer.name, own, tuple(members), blocked)


def within(labeled_axes: list[Axis], mask: Tensor) -> list[bool]:
    """Whether a mask of labels holds anywhere in each place."""
    return (torch.zeros(len(labeled_axes)).index_add_(0, owners(labeled_axes), mask[1:].float()) > 0).tolist()


def owners(labeled_axes: list[Axis]) -> Tensor:
    """The number of the place of each label, but for label 0."""
    return torch.arange(len(labeled_axes)).repeat_interleave(
        whole_numbers(axis.size for axis in labeled_axes)
    )


def whole_numbers(numbers: Iterable[int]) -> Tensor:
    """Whole numbers, or none, as a tensor."""
    return torch.tensor(list(numbers), dtype=torch.int64)
