"""Which channels stand and fall together, as found by following the model's computation."""

import dataclasses
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from torchlift.deploy.follow import Place, Trace

Role = Literal["writes", "reads"]

HIDDEN = ("the places of a kernel stay",)
"""Reasons of dimensions nobody would call channels."""


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


def couplings(found: Trace) -> list[Coupling]:
    """The couplings of a trace: channels that touch the same dimensions of the same weights."""
    parent, places = found.labels.parent, found.labels.places
    kinds = alike(found)
    kind, number = torch.zeros_like(parent), torch.zeros_like(parent)
    for count, (_, _, own) in enumerate(kinds):
        kind[own], number[own] = count, torch.arange(len(own))
    kind, number = kind[parent], number[parent]
    roles = [role(found, place) for place in places]

    def member(k: int, count: int) -> Member:
        mine = slice(places[k].start, places[k].start + places[k].size)
        index = (kind[mine] == count).nonzero().flatten()
        return Member(places[k].name, places[k].dim, places[k].size, roles[k][0], index, number[mine][index])

    made = [
        coupling([member(k, count) for k in touched], own, why, read=any(roles[k][1] for k in touched))
        for count, (touched, why, own) in enumerate(kinds)
        if why not in HIDDEN
    ]
    return [c for c in made if any(True for _ in c.of("writes"))]


def alike(found: Trace) -> list[tuple[tuple[int, ...], str, Tensor]]:
    """(numbers of the places they touch, why they stay, representatives) of all channels, alike ones together."""
    places, frozen = found.labels.places, found.labels.frozen()
    reasons = ["", *dict.fromkeys(frozen.values())]
    why = torch.zeros_like(found.labels.parent)
    why[list(frozen)] = torch.tensor([reasons.index(reason) for reason in frozen.values()])
    owner = torch.arange(len(places)).repeat_interleave(torch.tensor([place.size for place in places]))
    pairs = (found.labels.parent[1:] * len(places) + owner).unique()
    touched = pairs % len(places)
    roots, counts = (pairs // len(places)).unique_consecutive(return_counts=True)
    first, why = counts.cumsum(0) - counts, why[roots]
    same = torch.zeros(len(roots), dtype=torch.bool)  # as the channel before
    same[1:] = (counts[1:] == counts[:-1]) & (why[1:] == why[:-1])
    other = touched != touched[(torch.arange(len(pairs)) - counts.repeat_interleave(counts)).clamp(min=0)]
    same[torch.arange(len(roots)).repeat_interleave(counts)[other]] = False
    starts = (~same).nonzero().flatten().tolist()
    kinds: dict[tuple[tuple[int, ...], str], list[Tensor]] = {}
    for start, end in zip(starts, [*starts[1:], len(roots)], strict=True):
        own = tuple(touched[first[start] : first[start] + counts[start]].tolist())
        kinds.setdefault((own, reasons[int(why[start])]), []).append(roots[start:end])
    return [(own, reason, torch.cat(some)) for (own, reason), some in kinds.items()]


def coupling(members: list[Member], own: Tensor, why: str, *, read: bool) -> Coupling:
    """One coupling from its members and channels."""
    writer = next((m for m in members if m.role == "writes"), members[0])
    blocked = why or ("" if read else "nothing that reads these channels was seen")
    return Coupling(writer.name.rpartition(".")[0] or writer.name, own, tuple(members), blocked)


def role(found: Trace, place: Place) -> tuple[Role, bool]:
    """Whether a dimension is summed over, or holds what is computed; and whether it was seen to be read."""
    mine = slice(place.start, place.start + place.size)
    seen = found.watch.reader[mine]
    read = bool((seen & ~found.watch.looked_up[mine]).any())
    return "reads" if read else "writes", read or bool(seen.any())
