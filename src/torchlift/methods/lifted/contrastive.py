"""Contrastive training: the difference of a clamped and a free energy (Zach & Estellers 2019).

J = (1/β)[min_z {E + β·loss} − min_z E],  ∂J/∂θ = (1/β)[∂E/∂θ(clamped) − ∂E/∂θ(free)] (envelope theorem).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.flow.graph import NotAChainError
from torchlift.methods.lifted.layers import Layer, folded
from torchlift.methods.lifted.lift import Mu, StateLift
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.nudge import NudgedNetwork
from torchlift.methods.lifted.penalties import Bregman
from torchlift.methods.lifted.problem import CachedReading, LiftedProblem, energy_row, mean_loss
from torchlift.methods.lifted.solvers.descent import Accelerated, DescentRule
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.methods.lifted.sweeps import state_step
from torchlift.methods.lifted.unified import EnergyTask, Unified, as_unified

_INNER = 3


@dataclasses.dataclass(frozen=True)
class Contrastive(StateLift):
    """Any optimizer on ∂J/∂θ; for the Bregman penalty the free minimum is the forward pass.

    Without ``sweeps`` and ``rule`` every state is found to first order in one pass down
    (``nudge``), for any graph that ``lifted.Traced`` reads and the Bregman penalty; as
    β → 0 the gradient becomes that of back-propagation.
    Otherwise ``sweeps`` descending passes (5) find either minimum: of a chain of layers by the ``rule``
    (20 accelerated steps), of a network with skips by proximal steps.
    ``lr`` and ``batch_size`` None are the run's (1e-3 and 100 in ``lifted.train``).
    """

    solves: ClassVar[bool] = False

    beta: float = 0.01
    sweeps: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    rule: DescentRule | None = None
    penalty: str = "bregman"
    mu: Mu = 1.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise TorchliftError(f"Contrastive needs beta > 0, got {self.beta}.")

    def problem(self, task: Task, loss: Activation) -> LiftedProblem:
        """min J."""
        if self.rule is None and self.sweeps is None and self.penalty == "bregman":
            return NudgedTask(task, loss, self.beta, self.mu)
        try:
            if not isinstance(task.model, Unified):
                return ContrastiveTask(task, loss, self)
        except NotAChainError:
            if self.rule is not None:
                raise
        return GraphContrastiveTask(task, loss, self)

    def minimize(self, network: Network, x: Tensor, y: Tensor, *, clamped: bool) -> list[Tensor]:
        """argmin over the states of E + β·loss, or of E alone."""
        states = network.states(x)
        if not clamped and all(isinstance(p, Bregman) for p in network.penalties):
            return states
        top, rule = network.hidden - 1, self.rule or Accelerated(steps=20, tolerance=1e-6)
        for _ in range(5 if self.sweeps is None else self.sweeps):
            for index in reversed(range(network.hidden)):
                if index == top and not clamped:
                    states[index] = network.penalties[index].activation(
                        network.preactivation(index, x, states)
                    )
                else:
                    states[index] = state_step(network, index, x, y, states, rule)
        return states


def nudged(model: nn.Module) -> NudgedNetwork:
    """Any network in the unified form, or read into it."""
    return NudgedNetwork(as_unified(model))


class NudgedTask(LiftedProblem):
    """The loss, whose reverse pass is the contrastive gradient to first order in β."""

    def __init__(self, task: Task, loss: Activation, beta: float, mu: float | Sequence[float]) -> None:
        super().__init__(task, loss)
        self.beta, self.graph = beta, CachedReading(partial(nudged, task.model))
        hidden = len(self.graph().activations)
        self.mus = [float(mu)] * hidden if isinstance(mu, int | float) else [float(m) for m in mu]
        if len(self.mus) != hidden or min(self.mus, default=1.0) <= 0:
            raise TorchliftError(f"lifted: mu needs one positive number or {hidden} of them, got {mu!r}")
        self.seen, self.weight = (0, torch.zeros(())), 1.0

    def forward(self, batch: Batch, weight: float | None = None) -> Tensor:
        """weight · loss; a process's weight is not part of β."""
        self.weight = 1.0 if weight is None else weight
        return super().forward(batch, weight)

    def objective(self, batch: Batch) -> Tensor:
        """The mean loss of the forward pass."""
        x, y = self.pair(batch)
        steps = [self.beta * len(x) / (mu * self.weight) for mu in self.mus]
        value = mean_loss(self.output, y, self.graph()(x, steps))
        self.seen = len(x), value.detach()
        return value

    def row(self) -> Mapping[str, float]:
        """Energies of the last batch's states."""
        graph, (samples, loss) = self.graph(), self.seen
        energies = [
            *(activation.energy() for activation in graph.activations),
            samples * float(loss),
            samples,
        ]
        values = self.means(torch.tensor(energies, dtype=torch.float64))
        return energy_row(graph.names, values[:-1], values[-1], self.mus)


class ContrastiveTask(LiftedProblem):
    """J with its states at their minima: its gradient is that of the energies at fixed states."""

    def __init__(self, task: Task, loss: Activation, method: Contrastive) -> None:
        super().__init__(task, loss)
        self.method, self.network = method, Network.of(task.model, method.penalty, method.mu, loss)
        self.sums = torch.zeros(len(self.network.layers) + 1, dtype=torch.float64)

    def objective(self, batch: Batch) -> Tensor:
        """(1/β)[E + β·loss at the clamped states − E at the free ones], the mean over samples."""
        x, y = self.pair(batch)
        network, beta = self.network, self.method.beta
        for layer in network.layers:
            layer.theta = live(layer).detach()
        with torch.no_grad():
            y = network.targets(y, x)
            at = network.layer_energies(x, network.states(x), y)
            network.mus[-1] = beta
            clamped = self.method.minimize(network, x, y, clamped=True)
            network.mus[-1] = 0.0
            free = self.method.minimize(network, x, y, clamped=False)
        for layer in network.layers:
            layer.theta = live(layer)
        network.mus[-1] = 1.0
        mus, above, below = (
            x.new_tensor(network.mus[:-1]),
            network.layer_energies(x, clamped, y),
            network.layer_energies(x, free, y),
        )
        gap = (above[:-1] - below[:-1]) @ mus + beta * above[-1]
        for layer in network.layers:
            layer.theta = layer.theta.detach()
        self.sums = torch.cat([above[:-1].detach(), at[-1:], at.new_tensor([float(len(x))])]).double()
        return gap / (beta * len(x))

    def row(self) -> Mapping[str, float]:
        """Energies of the last batch's clamped states, the loss of its forward pass."""
        values = self.means(self.sums)
        names = [layer.name for layer in self.network.layers[:-1]]
        return energy_row(names, values[:-1], values[-1], self.network.mus[:-1])


class GraphContrastiveTask(EnergyTask):
    """J of a network with skips: either minimum by ``sweeps`` (5) of proximal steps on its states. Its rows
    show the energies of the clamped states, and the loss of the forward pass."""

    def __init__(self, task: Task, loss: Activation, method: Contrastive) -> None:
        super().__init__(task, loss, method.penalty, method.mu)
        self.method = method

    def minimize(self, x: Tensor, y: Tensor, clamp: float) -> list[Tensor]:
        """argmin over the states of E + clamp·loss."""
        energy = self.energy()
        z = energy.net.states(x)
        if clamp == 0 and all(isinstance(penalty, Bregman) for penalty in energy.penalties):
            return z
        for _ in range(self.method.sweeps or 5):
            energy.sweep(x, y, z, _INNER, clamp)
        return z

    def objective(self, batch: Batch) -> Tensor:
        """(1/β)[E + β·loss at the clamped states − E at the free ones], the mean over samples."""
        x, y = self.pair(batch)
        energy, beta = self.energy(), self.method.beta
        with torch.no_grad():
            forward = energy.net.states(x)
            y = as_targets(y, energy.net.preactivations(x, forward)[-1], self.output)
            loss = energy.layer_energies(x, y, forward)[-1]
            clamped, free = self.minimize(x, y, beta), self.minimize(x, y, 0.0)
        above, below = energy.layer_energies(x, y, clamped), energy.layer_energies(x, y, free)
        gap = (above[:-1] - below[:-1]) @ x.new_tensor(energy.mus[:-1]) + beta * above[-1]
        self.sums = torch.cat([above[:-1].detach(), loss[None], loss.new_tensor([float(len(x))])]).double()
        return gap / (beta * len(x))


def live(layer: Layer) -> Tensor:
    """θ = [W | b] as a function of the module's parameters, its batch norm folded in."""
    weight = layer.module.weight.flatten(1)
    bias = weight.new_zeros(len(weight)) if layer.module.bias is None else layer.module.bias
    if layer.norm is not None:
        scale, shift = folded(layer.norm)
        weight, bias = scale[:, None] * weight, scale * bias + shift
    return torch.cat([weight, bias[:, None]], 1)
