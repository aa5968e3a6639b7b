"""K u, M u = V z, z = σ(W u + b): chains, residual and unrolled proximal networks in one form.

Given the input, the hidden states u are affine in the activations z, so every pre-activation is an affine
function of x and the earlier z. The energy loss(K u, y) + Σ_l μ_l B_l(z_l, v_l) is then convex in each z_l,
and all its gradients are products with adjoints of affine maps: no derivative of an activation.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.convex.pullback import pullbacks
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import penalties
from torchlift.methods.lifted.lift import Mu, StateLift
from torchlift.methods.lifted.penalties import Bregman, Penalty
from torchlift.methods.lifted.problem import CachedReading, LiftedProblem, energy_row
from torchlift.methods.lifted.solvers.output import as_targets

_POWER_STEPS = 10
_STEEPEST = 1e12


class Unified(nn.Module, abc.ABC):
    """A network given by its activations and by the affine maps that lead to each of them."""

    activations: list[Activation]
    names: list[str] | None = None
    """What the activations are called, if they have names."""

    @abc.abstractmethod
    def run(self, x: Tensor, activations: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """The output with these functions in place of the activations, each called once and in order."""

    def preactivations(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """v₁, …, v_L and the output, for given activations."""
        preactivations: list[Tensor] = []

        def returning(state: Tensor) -> Callable[[Tensor], Tensor]:
            return lambda v: (preactivations.append(v), state)[1]

        output = self.run(x, [returning(state) for state in z])
        return [*preactivations, output]

    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass."""
        states: list[Tensor] = []

        def kept(activation: Activation) -> Callable[[Tensor], Tensor]:
            return lambda v: (states.append(activation(v)), states[-1])[1]

        self.run(x, [kept(activation) for activation in self.activations])
        return states

    def forward(self, x: Tensor) -> Tensor:
        """The output of the forward pass."""
        return self.run(x, self.activations)

    def labels(self) -> list[str]:
        """The names of the activations, or their numbers."""
        return self.names or [str(number) for number in range(1, len(self.activations) + 1)]


@dataclasses.dataclass(frozen=True)
class Energy:
    """loss(K u, y) + Σ_l μ_l P_l(z_l, v_l) of any unified network, any penalties; the loss is the last."""

    net: Unified
    penalties: Sequence[Penalty]
    mus: Sequence[float]

    @classmethod
    def of(cls, net: Unified, penalty: str, mu: float | Sequence[float], loss: Activation) -> "Energy":
        """One penalty by name for all layers; ``mu`` is one weight for all, or one for each."""
        hidden = len(net.activations)
        mus = [float(mu)] * hidden if isinstance(mu, int | float) else [float(m) for m in mu]
        if len(mus) != hidden or min(mus, default=1.0) <= 0:
            raise TorchliftError(f"lifted: mu needs one positive number or {hidden} of them, got {mu!r}")
        inner = [penalties.penalty_of(penalty, activation) for activation in net.activations]
        return cls(net, [*inner, Bregman(loss)], [*mus, 1.0])

    def layer_energies(self, x: Tensor, y: Tensor, z: Sequence[Tensor]) -> Tensor:
        """Σ over samples of every layer's unweighted penalty, the loss last."""
        triples = zip(self.penalties, [*z, y], self.net.preactivations(x, z), strict=True)
        return torch.stack([penalty.value(target, v).sum() for penalty, target, v in triples])

    def state(
        self, index: int, x: Tensor, y: Tensor, z: list[Tensor], steps: int, clamp: float = 1.0
    ) -> Tensor:
        """Proximal gradient steps on z_l, the loss times ``clamp``.

        The step size is bounded through the linear map z_l ↦ later v; where a later penalty is not convex in
        v, steps are halved until the energy falls.
        """
        here, mu, v = self.penalties[index], self.mus[index], self.net.preactivations(x, z)[index]

        def later(state: Tensor) -> tuple[Tensor, ...]:
            return tuple(self.net.preactivations(x, [*z[:index], state, *z[index + 1 :]])[index + 1 :])

        above, targets = self.penalties[index + 1 :], [*z[index + 1 :], y]
        weights = [*self.mus[index + 1 : -1], clamp]

        def value(state: Tensor) -> float:
            terms = zip(weights, above, targets, later(state), strict=True)
            total = mu * here.value(state, v).sum() + sum(w * p.value(t, a).sum() for w, p, t, a in terms)
            return float(total)

        bound = curvature(later, z[index], [w * p.lipschitz_v for w, p in zip(weights, above, strict=True)])
        guarded = not all(penalty.convex_v for penalty in above)
        state = z[index]
        for _ in range(steps):
            values, pull = pullbacks(later, state)
            slopes = zip(weights, above, targets, values, strict=True)
            slope = pull(tuple(w * p.grad_v(t, a) for w, p, t, a in slopes))
            new = here.prox_u(state - slope / bound, v, mu / bound)
            while guarded and value(new) > value(state) and bound < _STEEPEST:
                bound *= 2
                new = here.prox_u(state - slope / bound, v, mu / bound)
            state = new
        return state

    def sweep(self, x: Tensor, y: Tensor, z: list[Tensor], steps: int, clamp: float = 1.0) -> None:
        """All states in place, from the last layer down."""
        for index in reversed(range(len(z))):
            z[index] = self.state(index, x, y, z, steps, clamp)


def energy(net: Unified, x: Tensor, y: Tensor, z: Sequence[Tensor], mu: float, loss: Activation) -> Tensor:
    """Σ over samples of μ B_l(z_l, v_l), one number per layer, the loss last and unweighted."""
    whole = Energy.of(net, "bregman", mu, loss)
    terms = whole.layer_energies(x, y, z)
    return terms * terms.new_tensor(whole.mus)


@dataclasses.dataclass(frozen=True)
class UnifiedISGM(StateLift):
    """``rounds`` of descending proximal state steps, then a gradient step on θ; for networks with skips too.

    V and L enter the pre-activations of all later layers, so the weight step is a gradient step. ``lr`` and
    ``batch_size`` None are the run's (1e-3 and 100 in ``lifted.train``).
    """

    solves: ClassVar[bool] = False

    lr: float | None = None
    rounds: int = 2
    inner: int = 3
    batch_size: int | None = None
    penalty: str = "bregman"
    mu: Mu = 1.0

    def state(
        self, net: Unified, index: int, x: Tensor, y: Tensor, z: list[Tensor], mu: float, loss: Activation
    ) -> Tensor:
        """``inner`` proximal steps on z_l."""
        return Energy.of(net, self.penalty, mu, loss).state(index, x, y, z, self.inner)

    def problem(self, task: Task, loss: Activation) -> "UnifiedTask":
        """The task, lifted."""
        return UnifiedTask(task, loss, self)


class EnergyTask(LiftedProblem):
    """A problem on the energy of a network in the unified form; a step sums up the energies of its states."""

    def __init__(self, task: Task, loss: Activation, penalty: str, mu: Mu) -> None:
        super().__init__(task, loss)
        self.energy = CachedReading(partial(energy_of, task.model, penalty, mu, loss))
        self.sums = torch.zeros(len(self.energy().mus) + 1, dtype=torch.float64)

    def row(self) -> Mapping[str, float]:
        """Energies of the last batch's states."""
        values, energy = self.means(self.sums), self.energy()
        return energy_row(energy.net.labels(), values[:-1], values[-1], energy.mus[:-1])


class UnifiedTask(EnergyTask):
    """The energy at states that were just found: its gradient is that of a step on θ."""

    def __init__(self, task: Task, loss: Activation, method: UnifiedISGM) -> None:
        super().__init__(task, loss, method.penalty, method.mu)
        self.method = method

    def objective(self, batch: Batch) -> Tensor:
        """States by descending proximal steps, then the mean energy as a function of the weights."""
        x, y = self.pair(batch)
        energy = self.energy()
        with torch.no_grad():
            z = energy.net.states(x)
            y = as_targets(y, energy.net.preactivations(x, z)[-1], self.output)
            for _ in range(self.method.rounds):
                energy.sweep(x, y, z, self.method.inner)
        terms = energy.layer_energies(x, y, z)
        self.sums = torch.cat([terms.detach(), terms.new_tensor([float(len(x))])]).double()
        return terms @ terms.new_tensor(energy.mus) / len(x)


def energy_of(model: nn.Module, penalty: str, mu: float | Sequence[float], loss: Activation) -> Energy:
    """The energy of a model, read into the unified form."""
    return Energy.of(as_unified(model), penalty, mu, loss)


def as_unified(model: nn.Module) -> Unified:
    """The model in the unified form: as it is, or read through its graph."""
    from torchlift.methods.lifted.traced import Traced  # which is a unified network itself

    return model if isinstance(model, Unified) else Traced(model)


def curvature(later: Callable[[Tensor], tuple[Tensor, ...]], like: Tensor, weights: Sequence[float]) -> float:
    """‖Σ w_k A_kᵀA_k‖ for the linear parts A_k of the maps: power iteration, a start for every sample."""
    values, pull = pullbacks(later, like)
    direction = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    direction = direction / like[0].numel() ** 0.5
    size = like.new_tensor(1.0)
    for _ in range(_POWER_STEPS):
        moved = [b - a for a, b in zip(values, later(like + direction), strict=True)]
        image = pull(tuple(w * m for w, m in zip(weights, moved, strict=True)))
        size = image.flatten(1).norm(dim=1).amax().clamp(min=1e-12)
        direction = image / size
    return 1.1 * float(size)
