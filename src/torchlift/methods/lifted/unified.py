"""K u, M u = V z, z = σ(W u + b): chains, residual and unrolled proximal networks in one form.

Given the input, the hidden states u are affine in the activations z, so every pre-activation is an affine
function of x and the earlier z. The energy loss(K u, y) + Σ_l μ_l B_l(z_l, v_l) is then convex in each z_l,
and all its gradients are products with adjoints of affine maps: no derivative of an activation.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.penalties import Bregman
from torchlift.methods.lifted.problem import LiftedProblem, Reading, energy_row
from torchlift.methods.lifted.solvers.output import as_targets

_POWER_STEPS = 10


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
        found: list[Tensor] = []

        def given(state: Tensor) -> Callable[[Tensor], Tensor]:
            return lambda v: (found.append(v), state)[1]

        output = self.run(x, [given(state) for state in z])
        return [*found, output]

    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass."""
        found: list[Tensor] = []

        def kept(activation: Activation) -> Callable[[Tensor], Tensor]:
            return lambda v: (found.append(activation(v)), found[-1])[1]

        self.run(x, [kept(activation) for activation in self.activations])
        return found

    def forward(self, x: Tensor) -> Tensor:
        """The output of the forward pass."""
        return self.run(x, self.activations)

    def labels(self) -> list[str]:
        """The names of the activations, or their numbers."""
        return self.names or [str(number) for number in range(1, len(self.activations) + 1)]


def energy(net: Unified, x: Tensor, y: Tensor, z: Sequence[Tensor], mu: float, loss: Activation) -> Tensor:
    """Σ over samples of μ B_l(z_l, v_l), one number per layer, the loss last and unweighted."""
    acts, targets = [*net.activations, loss], [*z, y]
    values = zip(acts, targets, net.preactivations(x, z), strict=True)
    parts = torch.stack([act.penalty(target, v).sum() for act, target, v in values])
    return parts * parts.new_tensor([mu] * len(z) + [1.0])


@dataclasses.dataclass(frozen=True)
class UnifiedISGM:
    """ISGM for unified networks: ``rounds`` of descending proximal state steps, then one gradient step on θ.

    V and L enter the pre-activations of all later layers, so the weight step is a gradient step. ``lr`` and
    ``batch_size`` None are the run's (1e-3 and 100 in ``lifted.train``).
    """

    lr: float | None = None
    rounds: int = 2
    inner: int = 3
    batch_size: int | None = None

    def state(
        self, net: Unified, index: int, x: Tensor, y: Tensor, z: list[Tensor], mu: float, loss: Activation
    ) -> Tensor:
        """Proximal gradient steps on z_l; the step size is bounded through the linear map z_l ↦ later v."""
        act, v = net.activations[index], net.preactivations(x, z)[index]

        def later(state: Tensor) -> tuple[Tensor, ...]:
            return tuple(net.preactivations(x, [*z[:index], state, *z[index + 1 :]])[index + 1 :])

        acts, targets = [*net.activations[index + 1 :], loss], [*z[index + 1 :], y]
        weights = [mu] * (len(acts) - 1) + [1.0]
        bound = curvature(later, z[index], [w * a.lipschitz for w, a in zip(weights, acts, strict=True)])
        state = z[index]
        for _ in range(self.inner):
            graph = torch.func.vjp(later, state)
            slopes = zip(weights, acts, targets, graph[0], strict=True)
            slope = graph[1](tuple(w * a.grad_v(t, p) for w, a, t, p in slopes))[0]
            state = Bregman(act).prox_u(state - slope / bound, v, mu / bound)
        return state

    def problem(
        self, task: Task, penalty: str, mu: float | Sequence[float], loss: Activation
    ) -> "UnifiedTask":
        """The task, lifted."""
        if penalty != "bregman" or not isinstance(mu, int | float):
            raise TorchliftError(
                "lifted.train: networks in the unified form need method 'isgm', penalty 'bregman' and "
                f"one mu, got {penalty!r}, {mu!r}"
            )
        return UnifiedTask(task, loss, self, float(mu))


class UnifiedTask(LiftedProblem):
    """The energy at states that were just found: its gradient is that of a step on θ."""

    def __init__(self, task: Task, loss: Activation, method: UnifiedISGM, mu: float) -> None:
        super().__init__(task, loss)
        self.method, self.mu, self.net = method, mu, Reading(partial(as_unified, task.model))
        self.sums = torch.zeros(len(self.net().activations) + 2, dtype=torch.float64)

    def objective(self, batch: Batch) -> Tensor:
        """States by descending proximal steps, then the mean energy as a function of the weights."""
        x, y = self.pair(batch)
        net, method = self.net(), self.method
        with torch.no_grad():
            z = net.states(x)
            y = as_targets(y, net.preactivations(x, z)[-1], self.output)
            for _ in range(method.rounds):
                for index in reversed(range(len(z))):
                    z[index] = method.state(net, index, x, y, z, self.mu, self.output)
        parts = energy(net, x, y, z, self.mu, self.output)
        self.sums = torch.cat([parts.detach(), parts.new_tensor([float(len(x))])]).double()
        return parts.sum() / len(x)

    def row(self) -> Mapping[str, float]:
        """Energies of the last batch's states."""
        values, mus = self.means(self.sums), [self.mu] * (len(self.sums) - 2)
        names = [str(number) for number in range(1, len(mus) + 1)]
        return energy_row(names, [value / self.mu for value in values[:-1]], values[-1], mus)


def as_unified(model: nn.Module) -> Unified:
    """The model in the unified form: as it is, or read through its graph."""
    from torchlift.methods.lifted.traced import Traced  # which is a unified network itself

    return model if isinstance(model, Unified) else Traced(model)


def curvature(later: Callable[[Tensor], tuple[Tensor, ...]], like: Tensor, weights: Sequence[float]) -> float:
    """‖Σ w_k A_kᵀA_k‖ for the linear parts A_k of the maps: power iteration, a start for every sample."""
    graph = torch.func.vjp(later, like)
    direction = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    direction = direction / like[0].numel() ** 0.5
    size = like.new_tensor(1.0)
    for _ in range(_POWER_STEPS):
        moved = [b - a for a, b in zip(graph[0], later(like + direction), strict=True)]
        image = graph[1](tuple(w * m for w, m in zip(weights, moved, strict=True)))[0]
        size = image.flatten(1).norm(dim=1).amax().clamp(min=1e-12)
        direction = image / size
    return 1.1 * float(size)
