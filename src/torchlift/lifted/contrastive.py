"""Contrastive training: the difference of a clamped and a free energy (Zach & Estellers 2019).

J = (1/β)[min_z {E + β·loss} − min_z E],  ∂J/∂θ = (1/β)[∂E/∂θ(clamped) − ∂E/∂θ(free)] (envelope theorem).
"""

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from torchlift.lifted.bcd import state_step
from torchlift.lifted.layers import Layer
from torchlift.lifted.network import Network
from torchlift.lifted.penalties import Bregman
from torchlift.lifted.solvers.descent import Accelerated, Rule


def theta_gradient(layer: Layer, slope: Tensor, below: Tensor) -> Tensor:
    """∂/∂θ of a penalty whose slope in v is given: slopeᵀ[A 1]."""
    rows, out = layer.rows(below), layer.rows_of(slope)
    bias = out.sum(0) if layer.bias else torch.zeros_like(out[0])
    return torch.cat([out.mT @ rows, bias[:, None]], 1)


@dataclasses.dataclass(frozen=True)
class Contrastive:
    """Adam on the contrastive gradient of each batch; ``sweeps`` descending passes find either minimum.

    With the Bregman penalty the free minimum is the forward pass, its energy and gradient are 0, and as β → 0
    the gradient becomes that of back-propagation.
    """

    beta: float = 0.1
    sweeps: int = 5
    lr: float = 1e-3
    batch_size: int = 200
    rule: Rule = Accelerated(steps=20, tolerance=1e-6)

    def minimise(self, network: Network, x: Tensor, y: Tensor, *, clamped: bool) -> list[Tensor]:
        """argmin over the states of E + β·loss, or of E alone."""
        states = network.states(x)
        if not clamped and all(isinstance(p, Bregman) for p in network.penalties):
            return states
        top = network.hidden - 1
        for _ in range(self.sweeps):
            for index in reversed(range(network.hidden)):
                if index == top and not clamped:
                    states[index] = network.penalties[index].activation(
                        network.preactivation(index, x, states)
                    )
                else:
                    states[index] = state_step(network, index, x, y, states, self.rule)
        return states

    def gradients(self, network: Network, x: Tensor, y: Tensor) -> list[Tensor]:
        """∂J/∂θ_l of every layer, averaged over the batch."""
        last, network.mus[-1] = network.mus[-1], self.beta
        clamped = self._energy_gradients(network, x, y, self.minimise(network, x, y, clamped=True))
        network.mus[-1] = 0.0
        free = self._energy_gradients(network, x, y, self.minimise(network, x, y, clamped=False))
        network.mus[-1] = last
        scale = 1 / (self.beta * len(x))
        return [scale * (a - b) for a, b in zip(clamped, free, strict=True)]

    def _energy_gradients(self, network: Network, x: Tensor, y: Tensor, states: list[Tensor]) -> list[Tensor]:
        below, above = [x, *states], [*states, y]
        gradients: list[Tensor] = []
        for i, layer in enumerate(network.layers):
            v = network.preactivation(i, x, states)
            slope = network.mus[i] * network.penalties[i].grad_v(above[i], v)
            gradients.append(theta_gradient(layer, slope, below[i]))
        return gradients

    def epoch(
        self, network: Network, data: Iterable[tuple[Tensor, Tensor]], optimizer: torch.optim.Optimizer
    ) -> tuple[Tensor, int]:
        """One pass; the optimiser holds the layers' θ."""
        parts, samples = torch.zeros(len(network.layers)), 0
        for x, y in data:
            target = network.targets(y, x)
            parts = parts + network.parts(x, network.states(x), target).to(parts)
            samples += len(x)
            for layer, gradient in zip(network.layers, self.gradients(network, x, target), strict=True):
                layer.theta.grad = gradient
            optimizer.step()
        return parts, samples
