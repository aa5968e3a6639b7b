"""Labels: a number for every slice of every weight, united where slices must stay or go together."""

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Place:
    """A dimension of a parameter or buffer; slice i has the label ``start`` + i."""

    name: str
    dim: int
    start: int
    size: int

    @property
    def labels(self) -> Tensor:
        """The labels of all slices."""
        return torch.arange(self.start, self.start + self.size)


class Labels:
    """A union–find over slices. Label 0 means: not followed."""

    def __init__(self) -> None:
        self.parent = torch.zeros(1, dtype=torch.int64)
        self.places: list[Place] = []
        self.reasons: dict[int, str] = {}
        """Why a class may not be cut, by one of its labels; the first reason given stands."""

    def add(self, name: str, tensor: Tensor) -> list[Tensor]:
        """Labels for each dimension of a tensor, shaped so that they broadcast over it."""
        found: list[Tensor] = []
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                place = Place(name, dim, len(self.parent), size)
                self.places.append(place)
                self.parent = torch.cat([self.parent, place.labels])
                shape = [size if d == dim else 1 for d in range(tensor.ndim)]
                found.append(place.labels.reshape(shape))
        return found

    def roots(self, labels: Tensor) -> Tensor:
        """The representative of each label's class."""
        return self.parent[labels]

    def unite(self, a: Tensor, b: Tensor, why: str = "meets channels that cannot be followed") -> None:
        """Let a[k] and b[k] stay or go together; what meets a 0 stays."""
        a, b = torch.broadcast_tensors(self.roots(a), self.roots(b))
        differ = a != b
        if not bool(differ.any()):
            return
        low, high = torch.minimum(a, b)[differ], torch.maximum(a, b)[differ]
        lost = low == 0
        self.freeze(high[lost], why)
        low, high = low[~lost], high[~lost]
        while len(low):  # every class takes the least label it meets, until none meets another
            self.parent.scatter_reduce_(0, high, low, "amin")
            self.flatten()
            a, b = self.roots(low), self.roots(high)
            open_ = a != b
            low, high = torch.minimum(a, b)[open_], torch.maximum(a, b)[open_]

    def flatten(self) -> None:
        """Point every label at its representative."""
        while not torch.equal(up := self.parent[self.parent], self.parent):
            self.parent = up

    def freeze(self, labels: Tensor, why: str) -> None:
        """Keep the classes of these labels, for a reason."""
        for label in labels.unique().tolist():
            if label:
                self.reasons.setdefault(label, why)

    def frozen(self) -> dict[int, str]:
        """The reasons by representative."""
        found: dict[int, str] = {}
        for label, why in self.reasons.items():
            found.setdefault(int(self.parent[label]), why)
        return found

    def along(self, core: Tensor, dims: set[int]) -> Tensor:
        """The core with all entries along some dimensions united, and these dimensions of size 1."""
        for dim in sorted(dims):
            if core.shape[dim] > 1:
                first = core.narrow(dim, 0, 1)
                self.unite(core, first)
                core = first
        return core


def varying(core: Tensor) -> set[int]:
    """The dimensions along which labels differ: those that a core holds at full size."""
    return {dim for dim, size in enumerate(core.shape) if size > 1}


def compressed(full: Tensor) -> Tensor:
    """Labels of all entries of a tensor, with dimensions along which they are the same at size 1."""
    for dim, size in enumerate(full.shape):
        if size > 1:
            first = full.narrow(dim, 0, 1)
            if full.stride(dim) == 0 or bool((full == first).all()):
                full = first
    return full
