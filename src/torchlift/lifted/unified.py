"""K u, M u = V z, z = σ(W u + b): residual and unrolled proximal networks in one form.

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

from torchlift.lifted.activations import Activation, Clip
from torchlift.lifted.activations import get as get_activation
from torchlift.lifted.data import Data, batches, metric
from torchlift.lifted.history import Log, Trained
from torchlift.lifted.network import loss_activation
from torchlift.lifted.penalties import Bregman

_POWER_STEPS = 10


class Unified(nn.Module, abc.ABC):
    """A network given by its activations and by the affine maps that lead to each of them."""

    activations: list[Activation]

    @abc.abstractmethod
    def start(self, x: Tensor) -> Tensor:
        """u₀."""

    @abc.abstractmethod
    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """(W u + b)_l, l counted from 0."""

    @abc.abstractmethod
    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """u_l from M u = V z."""

    @abc.abstractmethod
    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """K u."""

    def preactivations(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """v₁, …, v_L and the output, for given activations."""
        u, found = self.start(x), list[Tensor]()
        for index, state in enumerate(z):
            found.append(self.preactivation(index, u, x))
            u = self.following(index, u, state)
        return [*found, self.readout(u, x)]

    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass."""
        u, states = self.start(x), list[Tensor]()
        for index, activation in enumerate(self.activations):
            states.append(activation(self.preactivation(index, u, x)))
            u = self.following(index, u, states[-1])
        return states

    def forward(self, x: Tensor) -> Tensor:
        """The output of the forward pass."""
        return self.preactivations(x, self.states(x))[-1]


class ResidualNet(Unified):
    """u_l = u_{l−1} + V_l σ(W_l u_{l−1} + b_l), u₀ = E x, output K u_L + c."""

    def __init__(
        self,
        inputs: int,
        width: int,
        inner: int,
        depth: int,
        outputs: int,
        activation: str | Activation = "relu",
    ) -> None:
        super().__init__()
        self.activations = [get_activation(activation)] * depth
        self.embed = nn.Linear(inputs, width)
        self.inward = nn.ModuleList(nn.Linear(width, inner) for _ in range(depth))
        self.outward = nn.ModuleList(nn.Linear(inner, width, bias=False) for _ in range(depth))
        self.head = nn.Linear(width, outputs)

    def start(self, x: Tensor) -> Tensor:
        """E x."""
        return self.embed(x)

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """W_l u + b_l."""
        return self.inward[index](u)

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """u + V_l z."""
        return u + self.outward[index](z)

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """K u + c."""
        return self.head(u)


class ProximalNet(Unified):
    """Unrolled dual forward–backward: z_l = clip((I − τL_lL_lᵀ)z_{l−1} + τL_l x, ±t), output x − L_{L+1}ᵀz_L.

    The prox of the conjugate of t‖·‖₁ is the clip; every L_l is learned.
    """

    def __init__(self, size: int, dual: int, depth: int, *, tau: float = 0.1, threshold: float = 0.1) -> None:
        super().__init__()
        self.tau = tau
        self.activations = [Clip(-threshold, threshold)] * depth
        first = torch.randn(dual, size) / size**0.5
        self.operators = nn.ParameterList(nn.Parameter(first.clone()) for _ in range(depth + 1))

    def start(self, x: Tensor) -> Tensor:
        """0."""
        return x.new_zeros(len(x), len(self.operators[0]))

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """u − τL(Lᵀu − x)."""
        operator = self.operators[index]
        return u - self.tau * (u @ operator - x) @ operator.mT

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """z."""
        return z

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """x − Lᵀu."""
        return x - u @ self.operators[-1]


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
    """‖Σ w_k A_kᵀA_k‖ for the linear parts A_k of the maps, by power iteration on one sample's shape."""
    graph = torch.func.vjp(later, like)
    direction = torch.ones_like(like) / like[0].numel() ** 0.5
    size = like.new_tensor(1.0)
    for _ in range(_POWER_STEPS):
        moved = [b - a for a, b in zip(graph[0], later(like + direction), strict=True)]
        image = graph[1](tuple(w * m for w, m in zip(weights, moved, strict=True)))[0]
        size = image.flatten(1).norm(dim=1).amax().clamp(min=1e-12)
        direction = image / size
    return 1.1 * float(size)
