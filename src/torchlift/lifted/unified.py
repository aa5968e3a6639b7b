"""K u, M u = V z, z = σ(W u + b): chains, residual and unrolled proximal networks in one form.

Given the input, the hidden states u are affine in the activations z, so every pre-activation is an affine
function of x and the earlier z. The energy loss(K u, y) + Σ_l μ_l B_l(z_l, v_l) is then convex in each z_l,
and all its gradients are products with adjoints of affine maps: no derivative of an activation.
"""

import abc
import dataclasses
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.lifted.data import Data, batches, metric
from torchlift.lifted.history import Log, Trained
from torchlift.lifted.network import loss_activation
from torchlift.lifted.penalties import Bregman
from torchlift.lifted.solvers.output import as_targets

_POWER_STEPS = 10


class Unified(nn.Module, abc.ABC):
    """A network given by its activations and by the affine maps that lead to each of them."""

    activations: list[Activation]

    @abc.abstractmethod
    def preactivations(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """v₁, …, v_L and the output, for given activations."""

    @abc.abstractmethod
    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        """The output of the forward pass."""
        return self.preactivations(x, self.states(x))[-1]


def energy(net: Unified, x: Tensor, y: Tensor, z: Sequence[Tensor], mu: float, loss: Activation) -> Tensor:
    """Σ over samples of μ B_l(z_l, v_l), one number per layer, the loss last and unweighted."""
    acts, targets = [*net.activations, loss], [*z, y]
    values = zip(acts, targets, net.preactivations(x, z), strict=True)
    parts = torch.stack([act.penalty(target, v).sum() for act, target, v in values])
    return parts * parts.new_tensor([mu] * len(z) + [1.0])


@dataclasses.dataclass(frozen=True)
class UnifiedISGM:
    """ISGM for unified networks: ``rounds`` of descending proximal state steps, then one Adam step on θ.

    V and L enter the pre-activations of all later layers, so the weight step is a gradient step.
    """

    lr: float = 1e-3
    rounds: int = 2
    inner: int = 3
    batch_size: int = 100

    def state(
        self, net: Unified, index: int, x: Tensor, y: Tensor, z: list[Tensor], mu: float, loss: Activation
    ) -> Tensor:
        """Proximal gradient steps on z_l; the step size is bounded through the linear map z_l ↦ later v."""
        act, v = net.activations[index], net.preactivations(x, z)[index]

        def later(state: Tensor) -> tuple[Tensor, ...]:
            return tuple(net.preactivations(x, [*z[:index], state, *z[index + 1 :]])[index + 1 :])

        acts, targets = [*net.activations[index + 1 :], loss], [*z[index + 1 :], y]
        weights = [mu] * (len(acts) - 1) + [1.0]
        bound = _curvature(later, z[index], [w * a.lipschitz for w, a in zip(weights, acts, strict=True)])
        state = z[index]
        for _ in range(self.inner):
            graph = torch.func.vjp(later, state)
            slopes = zip(weights, acts, targets, graph[0], strict=True)
            slope = graph[1](tuple(w * a.grad_v(t, p) for w, a, t, p in slopes))[0]
            state = Bregman(act).prox_u(state - slope / bound, v, mu / bound)
        return state

    def __call__(
        self,
        net: Unified,
        data: Data,
        *,
        mu: float = 1.0,
        loss: str | Activation = "mse",
        epochs: int = 10,
        valid: tuple[Tensor, Tensor] | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Trained:
        """Train the network in place."""
        output, log = loss_activation(loss), Log(epochs, progress and sys.stderr is not None)
        optimizer = torch.optim.Adam(net.parameters(), lr=self.lr)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            parts, samples = torch.zeros(len(net.activations) + 1), 0
            for x, y in batches(net, data, self.batch_size, generator):
                parts = parts + self.batch(net, x, y, mu, output, optimizer).to(parts)
                samples += len(x)
            mus = [1.0] * len(parts)  # parts are weighted already
            log.add(parts, samples, mus, None if valid is None else metric(net, valid))
        return Trained(net, log.rows, log.seconds)

    def batch(
        self,
        net: Unified,
        x: Tensor,
        y: Tensor,
        mu: float,
        loss: Activation,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """States, then one step on the weights: the gradient of the energy at fixed states."""
        with torch.no_grad():
            z = net.states(x)
            y = as_targets(y, net.preactivations(x, z)[-1])
            for _ in range(self.rounds):
                for index in reversed(range(len(z))):
                    z[index] = self.state(net, index, x, y, z, mu, loss)
        optimizer.zero_grad()
        parts = energy(net, x, y, z, mu, loss)
        (parts.sum() / len(x)).backward()
        optimizer.step()
        return parts.detach()


def _curvature(
    later: Callable[[Tensor], tuple[Tensor, ...]], like: Tensor, weights: Sequence[float]
) -> float:
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
