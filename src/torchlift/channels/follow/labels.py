"""Labels: a number for every slice of every weight, united where slices must stay or go together."""

import dataclasses
import functools
from collections.abc import Set

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Axis:
    """A dimension of a parameter or buffer; slice i has the label ``start`` + i."""

    name: str
    dim: int
    start: int
    size: int

    @property
    def labels(self) -> Tensor:
        """The labels of all slices."""
        return torch.arange(self.start, self.start + self.size)


NONE = torch.zeros(1, dtype=torch.int64)


class Labels:
    """A union–find over slices. Label 0 means: not followed.

    What is united or frozen while a model runs is written down, and worked in all at once when somebody asks.
    """

    def __init__(self) -> None:
        self.size = 1
        self.axes: list[Axis] = []
        self.root = torch.zeros(1, dtype=torch.int64)
        self.why: dict[int, str] = {}
        self.notes: list[tuple[Tensor, Tensor, str]] = []
        """(labels, labels they stay or go with, reason where one of the two is 0), in order."""

    def add(self, name: str, tensor: Tensor) -> list[Tensor]:
        """Labels for each dimension of a tensor, shaped so that they broadcast over it."""
        labels: list[Tensor] = []
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                axis = Axis(name, dim, self.size, size)
                self.axes.append(axis)
                self.size += size
                shape = [size if d == dim else 1 for d in range(tensor.ndim)]
                labels.append(axis.labels.reshape(shape))
        return labels

    @property
    def parent(self) -> Tensor:
        """The representative of every label's class."""
        self.work_in()
        return self.root

    @property
    def reasons(self) -> dict[int, str]:
        """Why a class may not be cut, by one of its labels; the first reason given stands."""
        self.work_in()
        return self.why

    def roots(self, labels: Tensor) -> Tensor:
        """The representative of each label's class."""
        return self.parent[labels]

    def unite(self, a: Tensor, b: Tensor, why: str = "meets channels that cannot be followed") -> None:
        """Let a[k] and b[k] stay or go together; what meets a 0 stays."""
        if a.shape != b.shape:
            a, b = torch.broadcast_tensors(a, b)
        self.notes.append((a.reshape(-1), b.reshape(-1), why))

    def freeze(self, labels: Tensor, why: str) -> None:
        """Keep the classes of these labels, for a reason."""
        flat = labels.reshape(-1)
        self.notes.append((flat, NONE.expand_as(flat), why))

    def work_in(self) -> None:
        """Work in what was noted."""
        if len(self.root) < self.size:
            self.root = torch.cat([self.root, torch.arange(len(self.root), self.size)])
        if not self.notes:
            return
        notes, self.notes = self.notes, []
        a, b = torch.cat([a for a, _, _ in notes]), torch.cat([b for _, b, _ in notes])
        number = torch.arange(len(notes)).repeat_interleave(torch.tensor([len(a) for a, _, _ in notes]))
        met = (a != 0) & (b != 0)
        lost = torch.maximum(a, b)[~met]
        for label, note in zip(lost.tolist(), number[~met].tolist(), strict=True):
            if label:
                self.why.setdefault(label, notes[note][2])
        self.merge(a[met], b[met])

    def merge(self, a: Tensor, b: Tensor) -> None:
        """Every class takes the least label it meets, until none meets another."""
        while True:
            a, b = self.root[a], self.root[b]
            differ = a != b
            if not bool(differ.any()):
                return
            a, b = a[differ], b[differ]
            self.root.scatter_reduce_(0, torch.maximum(a, b), torch.minimum(a, b), "amin")
            while not torch.equal(up := self.root[self.root], self.root):
                self.root = up

    def frozen(self) -> dict[int, str]:
        """The reasons by representative."""
        by_root: dict[int, str] = {}
        reasons = self.reasons
        labels = torch.tensor(list(reasons), dtype=torch.int64)
        for root, why in zip(self.roots(labels).tolist(), reasons.values(), strict=True):
            by_root.setdefault(root, why)
        return by_root

    def along(self, core: Tensor, dims: Set[int]) -> Tensor:
        """The core with all entries along some dimensions united, and these dimensions of size 1."""
        for dim in sorted(dims):
            if core.shape[dim] > 1:
                first = core.narrow(dim, 0, 1)
                self.unite(core, first)
                core = first
        return core


def varying(core: Tensor) -> Set[int]:
    """The dimensions along which labels differ: those that a core holds at full size."""
    return large(core.shape)


@functools.lru_cache(4096)
def large(shape: tuple[int, ...]) -> Set[int]:
    """The dimensions of a size above 1."""
    return frozenset(dim for dim, size in enumerate(shape) if size > 1)


def compressed_labels(full: Tensor) -> Tensor:
    """Labels of all entries of a tensor, with dimensions along which they are the same at size 1."""
    for dim, size in enumerate(full.shape):
        if size > 1 and same_along(full, dim):
            full = full.narrow(dim, 0, 1)
    return full


def same_along(full: Tensor, dim: int) -> bool:
    """Whether labels do not change along a dimension; mostly, two of them tell."""
    if full.stride(dim) == 0:
        return True
    corner = (0,) * full.ndim
    beside = (*corner[:dim], 1, *corner[dim + 1 :])
    if full.numel() and int(full[corner]) != int(full[beside]):
        return False
    return bool((full == full.narrow(dim, 0, 1)).all())
