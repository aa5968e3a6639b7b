"""A cheaper look: once couplings are known, only what readers and norms are given is watched."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchlift.channels.follow.convolutions import directions
from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.products import parted, weigh
from torchlift.channels.follow.rules import Known, pad, tensors_in

aten = torch.ops.aten
PRODUCTS = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}


class Glance(Follower):
    """Labels of weights alone are followed, to the products that use them."""

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Weights on their way, products, convolutions and norms; nothing else."""
        packet = func.overloadpacket
        if packet in PRODUCTS:
            first = PRODUCTS[packet]
            self.product(self.look(args[first]), self.look(args[first + 1]))
        elif packet is aten.convolution:
            self.maps(args)
        elif packet is aten.native_layer_norm and len(args[1]) == 1:
            self.norm(args[0], args[2])
        if all(self.look(t).pure for t in tensors_in([*args, *kwargs.values()])):
            super().follow(func, args, kwargs, out)

    def product(self, a: Known, b: Known) -> None:
        """What a weight's columns meet."""
        if not (a.pure or b.pure):
            return
        cores = [pad(core, 3) for core in (b if b.pure else a).cores]
        _, over, _ = parted(self, cores, 1 if b.pure else 2)
        if over is not None:
            weigh(self, a, b, over)

    def maps(self, args: Sequence[Any]) -> None:
        """What a kernel's inputs are."""
        x, kernel, padding, transposed, groups = args[0], args[1], args[4], bool(args[6]), int(args[8])
        reads = directions(self, self.look(kernel))[0 if transposed else 1]
        if groups == 1 and reads is not None:
            met = kernel, 0 if transposed else 1
            self.watch.reads(self, reads, (x, 1), met, foldable=not transposed and not any(padding))

    def norm(self, x: Tensor, weight: Tensor | None) -> None:
        """What a norm averages over, by the labels of its weight."""
        for core in [] if weight is None else self.look(weight).cores:
            self.watch.averages(core.flatten(), x)
