"""ISGM: implicit stochastic gradient steps on mini-batches, states discarded (Wang and Benning 2022).

(θ, X)ᵏ⁺¹ = argmin (1/|S|) Σ_{i∈S} [loss_i + Σ_l μ_l B_l] + ρ‖W‖² + (1/2τ_k)‖θ − θᵏ‖²   (Wang & Benning 2022)
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.blocks import BlockTask, trained_sum
from torchlift.methods.lifted.lift import Mu, StateLift
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.shard import Slice
from torchlift.methods.lifted.solvers.descent import Nesterov
from torchlift.methods.lifted.solvers.proximal import proximal_weights
from torchlift.methods.lifted.sweeps import state_step
from torchlift.train.stepping import StepContext


@dataclasses.dataclass(frozen=True)
class ISGM(StateLift):
    """Per batch: forward pass, then ``rounds`` of {states, weights} with ``inner`` steps each.

    ``tau`` is the implicit step size: constant, τ/√k, or falling linearly to 0 over the run, times the factor
    of the run's schedule. Memory is one batch of states; there is no autograd graph and no derivative of an
    activation. ``batch_size`` None is the run's (200 in ``lifted.train``).
    """

    tau: float = 0.5
    rounds: int = 2
    inner: int = 4
    rho: float = 0.0
    schedule: Literal["constant", "sqrt", "linear"] = "constant"
    batch_size: int | None = None
    penalty: str = "bregman"
    mu: Mu = 1.0
    state_l1: float = 0.0

    def __post_init__(self) -> None:
        if self.schedule not in ("constant", "sqrt", "linear"):
            raise TorchliftError(f"ISGM's schedule is constant, sqrt or linear, got {self.schedule!r}.")

    def problem(self, task: Task, loss: Activation) -> "ISGMTask":
        """The task, lifted."""
        return ISGMTask(task, loss, self)

    def step_size(self, batch: int, progress: float) -> float:
        """τ_k after ``batch`` batches, ``progress`` of the whole run."""
        match self.schedule:
            case "constant":
                return self.tau
            case "sqrt":
                return self.tau / math.sqrt(batch + 1)
            case "linear":
                return self.tau * max(1 - progress, 0.02)

    def batch(
        self, network: Network, x: Tensor, y: Tensor, tau: float, mine: Slice, trained: Sequence[bool]
    ) -> Tensor:
        """One implicit step on one batch; the summed penalties before the weights moved last.

        Processes find the states of their own rows; the weights' small systems are solved by each for all.
        """
        my_x, my_y = mine.take(x), mine.take(y)
        states = network.states(my_x)
        terms = network.layer_energies(my_x, states, my_y)
        anchors = [layer.theta for layer in network.layers]
        for _ in range(self.rounds):
            for index in reversed(range(network.hidden)):
                states[index] = state_step(network, index, my_x, my_y, states, Nesterov(self.inner))
            whole = [mine.join(state, len(x)) for state in states]
            self._weights(network, x, y, whole, anchors, tau, trained)
        hidden = network.layer_energies(my_x, states, my_y)[:-1]
        return mine.shard.sum(torch.cat([hidden, terms[-1:]]))

    def _weights(
        self,
        network: Network,
        x: Tensor,
        y: Tensor,
        states: list[Tensor],
        anchors: list[Tensor],
        tau: float,
        trained: Sequence[bool],
    ) -> None:
        below, above = [x, *states], [*states, y]
        for i, layer in enumerate(network.layers):
            if not trained[i]:
                continue
            layer.theta = proximal_weights(
                layer.rows(below[i]),
                layer.rows_of(above[i]),
                network.penalties[i].in_v,
                network.mus[i],
                anchors[i],
                tau=tau,
                rho=self.rho,
                samples=len(x),
                steps=self.inner,
                bias=layer.bias,
            )


class ISGMTask(BlockTask):
    """One implicit step per batch."""

    def __init__(self, task: Task, loss: Activation, method: ISGM) -> None:
        super().__init__(task, loss, method.penalty, method.mu, state_l1=method.state_l1)
        self.method, self.seen = method, 0

    def memory(self) -> dict[str, Any]:
        """How many batches there were."""
        return {"seen": self.seen}

    def regularization(self) -> float:
        """ρ‖W‖²."""
        return trained_sum(self, self.method.rho)

    def step(self, batch: Batch, context: StepContext) -> None:
        """States and weights of one batch."""
        x, y = self.pair(batch)
        tau = self.method.step_size(self.seen, context.t) * context.rate
        mine = Slice.of(len(x), context.rank, context.world)
        target = self.network.targets(y, x)
        self.note(self.method.batch(self.network, x, target, tau, mine, self.trained), len(x))
        self.seen += 1
