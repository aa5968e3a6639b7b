"""ISGM: implicit stochastic gradient steps on mini-batches, states discarded (Wang and Benning 2022).

(θ, X)ᵏ⁺¹ = argmin (1/|S|) Σ_{i∈S} [loss_i + Σ_l μ_l B_l] + ρ‖W‖² + (1/2τ_k)‖θ − θᵏ‖²   (Wang & Benning 2022)
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from torchlift.lifted.bcd import state_step
from torchlift.lifted.network import Network
from torchlift.lifted.solvers.descent import Nesterov
from torchlift.lifted.solvers.proximal import proximal_weights


@dataclasses.dataclass
class ISGM:
    """Per batch: forward pass, then ``rounds`` of {states, weights} with ``inner`` steps each.

    ``tau`` is the implicit step size: constant, τ/√k, or falling linearly to 0 over the run. Memory is one
    batch of states; there is no autograd graph and no derivative of an activation.
    """

    tau: float = 0.5
    rounds: int = 2
    inner: int = 4
    rho: float = 0.0
    schedule: Literal["constant", "sqrt", "linear"] = "constant"
    batch_size: int = 200

    def step_size(self, batch: int, progress: float) -> float:
        """τ_k after ``batch`` batches, ``progress`` of the whole run."""
        match self.schedule:
            case "constant":
                return self.tau
            case "sqrt":
                return self.tau / math.sqrt(batch + 1)
            case "linear":
                return self.tau * max(1 - progress, 0.02)

    def batch(self, network: Network, x: Tensor, y: Tensor, tau: float) -> Tensor:
        """One implicit step on one batch; returns the summed penalties before the weights moved last."""
        states = network.states(x)
        parts = network.parts(x, states, y)
        anchors = [layer.theta for layer in network.layers]
        for _ in range(self.rounds):
            for index in reversed(range(network.hidden)):
                states[index] = state_step(network, index, x, y, states, Nesterov(self.inner))
            self._weights(network, x, y, states, anchors, tau)
        hidden = network.parts(x, states, y)[:-1]
        return torch.cat([hidden, parts[-1:]])

    def _weights(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], anchors: list[Tensor], tau: float
    ) -> None:
        below, above = [x, *states], [*states, y]
        for i, layer in enumerate(network.layers):
            layer.theta = proximal_weights(
                layer.rows(below[i]),
                layer.rows_of(above[i]),
                network.penalties[i],
                network.mus[i],
                anchors[i],
                tau=tau,
                rho=self.rho,
                samples=len(x),
                steps=self.inner,
                bias=layer.bias,
            )

    def epoch(
        self, network: Network, data: Iterable[tuple[Tensor, Tensor]], seen: int, total: float
    ) -> tuple[Tensor, int, int]:
        """One pass: summed penalties (the loss as each batch was met), samples, batches so far."""
        parts, samples = torch.zeros(len(network.layers)), 0
        for x, y in data:
            tau = self.step_size(seen, seen / total)
            parts = parts + self.batch(network, x, network.targets(y, x), tau).to(parts)
            samples, seen = samples + len(x), seen + 1
        return parts, samples, seen
