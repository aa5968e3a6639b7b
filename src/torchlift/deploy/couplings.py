"""Which channels stand and fall together, as found by following the model's computation."""

import dataclasses
from collections.abc import Iterator, Mapping
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
    roots = {place: found.labels.roots(place.labels) for place in found.labels.places}
    touched: dict[int, list[Place]] = {}
    for place, own in roots.items():
        for root in own.unique().tolist():
            touched.setdefault(root, []).append(place)
    frozen = found.labels.frozen()
    kinds: dict[tuple[tuple[Place, ...], str], list[int]] = {}
    for root, places in touched.items():
        kinds.setdefault((tuple(places), frozen.get(root, "")), []).append(root)
    made = [
        coupling(found, places, torch.tensor(sorted(own)), roots, why)
        for (places, why), own in kinds.items()
        if why not in HIDDEN
    ]
    return [c for c in made if any(True for _ in c.of("writes"))]


def coupling(
    found: Trace, places: tuple[Place, ...], own: Tensor, roots: Mapping[Place, Tensor], why: str
) -> Coupling:
    """One coupling from its places and channels."""
    members: list[Member] = []
    for place in places:
        index = torch.isin(roots[place], own).nonzero().flatten()
        channel = torch.searchsorted(own, roots[place][index])
        members.append(Member(place.name, place.dim, place.size, role(found, place), index, channel))
    writer = next((m for m in members if m.role == "writes"), members[0])
    seen = any(m.role == "reads" for m in members) or bool(found.watch.reader[own].any())
    read = seen or any(bool(found.watch.reader[p.labels].any()) for p in places)
    blocked = why or ("" if read else "nothing that reads these channels was seen")
    return Coupling(writer.name.rpartition(".")[0] or writer.name, own, tuple(members), blocked)


def role(found: Trace, place: Place) -> Role:
    """Whether a dimension is summed over, or holds what is computed."""
    read = found.watch.reader[place.labels] & ~found.watch.looked_up[place.labels]
    return "reads" if bool(read.any()) else "writes"
