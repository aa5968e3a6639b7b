"""What a model would weigh and cost without some channels, counted without building it."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from torchlift.channels.follow import Axis, Trace
from torchlift.channels.follow.labels import Labels, compressed_labels, varying


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """Sizes of all weights and products, with the channels that lie along them."""

    sizes: Mapping[str, tuple[int, ...]]
    axes_of: Mapping[str, tuple[tuple[Axis, Tensor], ...]]
    products: tuple[tuple[tuple[int, Tensor | None], ...], ...]
    samples: int

    def parameters(self, gone: Tensor) -> float:
        """How many parameters are left without the channels (by their representatives)."""
        total = 0
        for name, shape in self.sizes.items():
            left = list(shape)
            for axis, roots in self.axes_of.get(name, ()):
                left[axis.dim] -= int(torch.isin(roots, gone).sum())
            total += math.prod(left)
        return float(total)

    def macs(self, gone: Tensor) -> float:
        """How many multiplications one sample takes without the channels."""
        total = 0
        for extents in self.products:
            total += math.prod(
                size if roots is None else size - int(torch.isin(roots, gone).sum())
                for size, roots in extents
            )
        return total / self.samples


def sizes_by_count(
    costs: Costs, groups: Mapping[str, Tensor]
) -> Callable[[Mapping[str, int]], tuple[float, float, float]]:
    """Channels, parameters and MACs that are left, as a function of how many channels of each group (name →
    representatives) go."""

    def extent(size: int, roots: list[Tensor]) -> tuple[int, list[tuple[str, float]]]:
        hits = {name: sum(int(torch.isin(r, own).sum()) for r in roots) for name, own in groups.items()}
        return size, [(name, count / len(groups[name])) for name, count in hits.items() if count]

    weights: list[list[tuple[int, list[tuple[str, float]]]]] = []
    for name, shape in costs.sizes.items():
        along = costs.axes_of.get(name, ())
        weights.append(
            [extent(n, [roots for axis, roots in along if axis.dim == dim]) for dim, n in enumerate(shape)]
        )
    products = [
        [extent(size, [] if roots is None else [roots]) for size, roots in extents]
        for extents in costs.products
    ]

    def left(terms: list[list[tuple[int, list[tuple[str, float]]]]], counts: Mapping[str, int]) -> float:
        return sum(
            math.prod(size - sum(each * counts[name] for name, each in own) for size, own in term)
            for term in terms
        )

    def sizes(counts: Mapping[str, int]) -> tuple[float, float, float]:
        channels = sum(len(own) - counts[name] for name, own in groups.items())
        return channels, left(weights, counts), left(products, counts) / costs.samples

    return sizes


def costs_of(model: nn.Module, trace: Trace) -> Costs:
    """The costs of a model that was followed."""
    axes_of: dict[str, list[tuple[Axis, Tensor]]] = {}
    for axis in trace.labels.axes:
        axes_of.setdefault(axis.name, []).append((axis, trace.labels.roots(axis.labels)))
    products = tuple(
        tuple((size, channel_line(trace.labels, core, dim)) for size, core, dim in extents)
        for extents in trace.readers.products
    )
    sizes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return Costs(sizes, {n: tuple(own) for n, own in axes_of.items()}, products, trace.samples)


def channel_line(labels: Labels, core: Tensor | None, dim: int) -> Tensor | None:
    """The channels along a dimension, by representatives; None where they turned out to be one."""
    core = None if core is None else compressed_labels(labels.roots(core))
    if core is None or dim not in varying(core):
        return None
    return core.transpose(0, dim).reshape(core.shape[dim], -1)[:, 0]
