"""What a model would weigh and cost without some channels, counted without building it."""

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchlift.channels.follow import Place, Trace
from torchlift.channels.follow.labels import Labels, compressed, varying


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """Sizes of all weights and products, with the channels that lie along them."""

    sizes: Mapping[str, tuple[int, ...]]
    places: Mapping[str, tuple[tuple[Place, Tensor], ...]]
    products: tuple[tuple[tuple[int, Tensor | None], ...], ...]
    samples: int

    def parameters(self, gone: Tensor) -> float:
        """How many parameters are left without the channels (by their representatives)."""
        total = 0
        for name, shape in self.sizes.items():
            left = list(shape)
            for place, roots in self.places.get(name, ()):
                left[place.dim] -= int(torch.isin(roots, gone).sum())
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


def costs_of(model: nn.Module, found: Trace) -> Costs:
    """The costs of a model that was followed."""
    places: dict[str, list[tuple[Place, Tensor]]] = {}
    for place in found.labels.places:
        places.setdefault(place.name, []).append((place, found.labels.roots(place.labels)))
    products = tuple(
        tuple((size, line(found.labels, core, dim)) for size, core, dim in extents)
        for extents in found.readers.products
    )
    sizes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return Costs(sizes, {n: tuple(own) for n, own in places.items()}, products, found.samples)


def line(labels: Labels, core: Tensor | None, dim: int) -> Tensor | None:
    """The channels along a dimension, by representatives; None where they turned out to be one."""
    core = None if core is None else compressed(labels.roots(core))
    if core is None or dim not in varying(core):
        return None
    return core.transpose(0, dim).reshape(core.shape[dim], -1)[:, 0]
