"""E(u, z) = loss(K u, y) + Σ_l μ B_l(z_l, (W u + b)_l) + (ρ/2)‖M u − V z‖²: hidden states as variables too.

With the constraint soft, every block meets its neighbors alone: z_l its own penalty and constraint, u_l
those of layers l and l + 1. A sweep costs as much per layer however deep the network, where eliminating u
makes every z_l enter all later layers. All maps are affine, so all blocks are convex.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.pullback import pullbacks
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.lift import Mu, StateLift, one_mu
from torchlift.methods.lifted.penalties import Bregman
from torchlift.methods.lifted.problem import LiftedProblem, energy_row
from torchlift.methods.lifted.recursive import Recursive
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.methods.lifted.unified import curvature

Maps = Callable[[Tensor], tuple[Tensor, ...]]


@dataclasses.dataclass
class States:
    """u_0, …, u_L and z_1, …, z_L of a batch; u_0 is the network's start and stays."""

    u: list[Tensor]
    z: list[Tensor]

    @classmethod
    def of(cls, net: Recursive, x: Tensor) -> "States":
        """Those of the forward pass: every penalty and every constraint is zero."""
        z = net.states(x)
        u = [net.start(x)]
        for index, state in enumerate(z):
            u.append(net.following(index, u[-1], state))
        return cls(u, z)


@dataclasses.dataclass(frozen=True)
class SoftEnergy:
    """E(u, z) of a recursive network (``ResidualNet``, ``ProximalNet`` or your own), of its states."""

    net: Recursive
    x: Tensor
    y: Tensor
    loss: Activation
    mu: float = 1.0
    rho: float = 1.0

    def layer_energies(self, states: States) -> tuple[Tensor, Tensor, Tensor]:
        """Σ over samples: B_l and ½‖(M u − V z)_l‖² of every layer, and the loss; all unweighted."""
        net, u, z = self.net, states.u, states.z
        before = [net.preactivation(i, u[i], self.x) for i in range(len(z))]
        gaps = [act.penalty(*pair).sum() for act, *pair in zip(net.activations, z, before, strict=True)]
        ties = [(u[i + 1] - net.following(i, u[i], z[i])).square().sum() / 2 for i in range(len(z))]
        loss = self.loss.penalty(self.y, net.readout(u[-1], self.x)).sum()
        return torch.stack(gaps), torch.stack(ties), loss

    def value(self, states: States) -> Tensor:
        """E."""
        gaps, ties, loss = self.layer_energies(states)
        return loss + self.mu * gaps.sum() + self.rho * ties.sum()

    def z_step(self, states: States, index: int, inner: int) -> Tensor:
        """Proximal gradient steps on z_l: its penalty exactly, (ρ/2)‖u_l − V_l z_l − …‖² linearized."""
        net, u, z = self.net, states.u, states.z[index]
        v = net.preactivation(index, u[index], self.x)

        def maps(state: Tensor) -> tuple[Tensor, ...]:
            return (net.following(index, u[index], state),)

        bound = curvature(maps, z, [self.rho])
        penalty = Bregman(net.activations[index])
        for _ in range(inner):
            slope = pulled(maps, z, lambda out: (self.rho * (out[0] - u[index + 1]),))
            z = penalty.prox_u(z - slope / bound, v, self.mu / bound)
        return z

    def u_step(self, states: States, index: int, inner: int) -> Tensor:
        """Gradient steps on u_l, l ≥ 1: its own constraint, and what the next layer or the loss asks."""
        net, x, u = self.net, self.x, states.u[index]
        center = net.following(index - 1, states.u[index - 1], states.z[index - 1])
        if index == len(states.z):
            weights = [self.rho, self.loss.lipschitz]

            def maps(state: Tensor) -> tuple[Tensor, ...]:
                return state, net.readout(state, x)

            def slopes(out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                return self.rho * (out[0] - center), self.loss.grad_v(self.y, out[1])

        else:
            act, z, above = net.activations[index], states.z[index], states.u[index + 1]
            weights = [self.rho, self.mu * act.lipschitz, self.rho]

            def maps(state: Tensor) -> tuple[Tensor, ...]:
                return state, net.preactivation(index, state, x), net.following(index, state, z)

            def slopes(out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                own, here, tie = out
                return self.rho * (own - center), self.mu * act.grad_v(z, here), self.rho * (tie - above)

        bound = curvature(maps, u, weights)
        for _ in range(inner):
            u = u - pulled(maps, u, slopes) / bound
        return u

    def sweep(self, states: States, inner: int = 1) -> None:
        """From the loss down: u_L, z_L, u_{L−1}, …, z_1. No block raises E."""
        for index in reversed(range(len(states.z))):
            states.u[index + 1] = self.u_step(states, index + 1, inner)
            states.z[index] = self.z_step(states, index, inner)


def pulled(maps: Maps, at: Tensor, slopes: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]) -> Tensor:
    """Σ A_kᵀ slope_k at the maps' values: adjoints of affine maps."""
    values, pull = pullbacks(maps, at)
    return pull(slopes(values))


@dataclasses.dataclass(frozen=True)
class Soft(StateLift):
    """``sweeps`` over all states of a batch, then a gradient step of E on θ = (W, b, V, K).

    ``rho`` is how tightly M u = V z is kept; cost is linear in depth. ``lr`` and ``batch_size`` None are the
    run's (1e-3 and 100 in ``lifted.train``).
    """

    solves: ClassVar[bool] = False

    rho: float = 1.0
    sweeps: int = 2
    inner: int = 2
    lr: float | None = None
    batch_size: int | None = None
    mu: Mu = 1.0

    def problem(self, task: Task, loss: Activation) -> "SoftTask":
        """The task, lifted."""
        return SoftTask(task, loss, self, one_mu("Soft", self.mu))


class SoftTask(LiftedProblem):
    """E at states that were just found, as a function of the weights."""

    def __init__(self, task: Task, loss: Activation, method: Soft, mu: float) -> None:
        super().__init__(task, loss)
        if not isinstance(task.model, Recursive):
            kind = type(task.model).__name__
            raise TorchliftError(
                f"method 'soft' needs a lifted.Recursive network (ResidualNet, …), got {kind}."
            )
        self.method, self.mu = method, mu
        self.sums = torch.zeros(2 * len(self.net.activations) + 2, dtype=torch.float64)

    @property
    def net(self) -> Recursive:
        """The network."""
        return cast(Recursive, self.task.model)

    def objective(self, batch: Batch) -> Tensor:
        """The mean energy."""
        x, y = self.pair(batch)
        with torch.no_grad():
            states = States.of(self.net, x)
            y = as_targets(y, self.net.readout(states.u[-1], x), self.output)
            energy = SoftEnergy(self.net, x, y, self.output, self.mu, self.method.rho)
            for _ in range(self.method.sweeps):
                energy.sweep(states, self.method.inner)
        states.u[0] = self.net.start(x)  # its weights are trained too
        gaps, ties, loss = energy.layer_energies(states)
        sums = torch.cat([gaps, ties, loss[None], loss.new_tensor([float(len(x))])])
        self.sums = sums.detach().double()
        return (loss + self.mu * gaps.sum() + self.method.rho * ties.sum()) / len(x)

    def row(self) -> Mapping[str, float]:
        """Energies of the last batch's states: of the penalties, and of the constraints."""
        values, depth = self.means(self.sums), len(self.net.activations)
        names = [f"{kind}{number}" for kind in ("", "constraint ") for number in range(1, depth + 1)]
        return energy_row(names, values[:-1], values[-1], [self.mu] * depth + [self.method.rho] * depth)
