"""Weights from samples that are seen once: Gram matrices summed up batch by batch, then one solve.

With A₁ = [A 1] and T = v − ∇ᵥP/ℓ a batch adds A₁ᵀA₁ and A₁ᵀT to its layer's normal equations: the majorised
problem min (μℓ/2)‖A₁θᵀ − T‖² + ρ‖W‖² needs no more of the data.
"""

import torch
from torch import Tensor

from torchlift.methods.lifted.layers import Layer
from torchlift.methods.lifted.penalties import Penalty
from torchlift.methods.lifted.shard import Shard

Equations = dict[str, Tensor]
"""``gram`` (p × p), ``right`` (p × out) and the number of ``rows``."""


def none_yet(layer: Layer) -> Equations:
    """Before the first batch."""
    out, inputs = layer.theta.shape
    zeros = layer.theta.new_zeros
    return {"gram": zeros(inputs, inputs), "right": zeros(inputs, out), "rows": zeros(())}


def added(
    equations: Equations, layer: Layer, penalty: Penalty, below: Tensor, above: Tensor, shard: Shard
) -> Equations:
    """With the samples of one more batch, of all processes."""
    rows = layer.rows(below)
    ones = rows.new_ones(len(rows), 1) if layer.bias else rows.new_zeros(len(rows), 1)
    a = torch.cat([rows, ones], 1)
    v, target = a @ layer.theta.mT, layer.rows_of(above)
    pull = v - penalty.grad_v(target, v) / penalty.lipschitz_v
    new = {"gram": a.mT @ a, "right": a.mT @ pull, "rows": rows.new_tensor(float(len(rows)))}
    return {name: equations[name] + shard.sum(term) for name, term in new.items()}


def solution(equations: Equations, layer: Layer, weight: float, shard: Shard) -> Tensor:
    """θ for the equations of all processes, ``weight`` = 2ρ/(μℓ)."""
    gram = shard.sum(equations["gram"]).clone()
    gram.diagonal()[:-1].add_(weight)
    gram.diagonal()[-1:].add_(0.0 if layer.bias else 1.0)
    return torch.linalg.solve(gram, shard.sum(equations["right"])).mT.contiguous()
