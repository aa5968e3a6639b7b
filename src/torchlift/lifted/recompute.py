"""Weights from states that are never stored: chunks of samples are lifted, summed up and forgotten.

Every chunk starts from the forward pass, takes its state steps, and adds A₁ᵀA₁ and A₁ᵀT to the layer's normal
equations, T = v − ∇ᵥP/ℓ. Memory is one chunk of states however deep the network; the price is that states do
not carry over from sweep to sweep.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.lifted.network import Network
from torchlift.lifted.shard import Shard

StateSweep = Callable[[Network, Tensor, Tensor, list[Tensor], Shard], None]


def recomputed_sweep(
    network: Network, x: Tensor, y: Tensor, *, chunk: int, rho: float, states_of: StateSweep, shard: Shard
) -> Tensor:
    """One sweep over all samples: new weights in the layers, the summed penalties returned."""
    shapes = [(layer.theta.shape[1], layer.theta.shape[0]) for layer in network.layers]
    grams = [x.new_zeros(p, p) for p, _ in shapes]
    rights = [x.new_zeros(p, out) for p, out in shapes]
    parts = x.new_zeros(len(shapes))
    for some_x, some_y in zip(x.split(chunk), y.split(chunk), strict=True):
        states = network.states(some_x)
        states_of(network, some_x, some_y, states, shard)
        parts += network.parts(some_x, states, some_y)
        below, above = [some_x, *states], [*states, some_y]
        for i, layer in enumerate(network.layers):
            rows = layer.rows(below[i])
            ones = rows.new_ones(len(rows), 1) if layer.bias else rows.new_zeros(len(rows), 1)
            a = torch.cat([rows, ones], 1)
            v, target, penalty = a @ layer.theta.mT, layer.rows_of(above[i]), network.penalties[i]
            grams[i] += a.mT @ a
            rights[i] += a.mT @ (v - penalty.grad_v(target, v) / penalty.lipschitz_v)
    for i, layer in enumerate(network.layers):
        gram = shard.sum(grams[i])
        weight = 2 * rho / (network.mus[i] * network.penalties[i].lipschitz_v)
        gram.diagonal()[:-1].add_(weight)
        gram.diagonal()[-1:].add_(0.0 if layer.bias else 1.0)
        layer.theta = torch.linalg.solve(gram, shard.sum(rights[i])).mT.contiguous()
    return shard.sum(parts)
