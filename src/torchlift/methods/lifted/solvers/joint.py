"""All hidden states at once, where the penalties are jointly convex: the classical one (Askari et al. 2018).

Σ_l w_l[½‖u_l − v_l‖² + Ψ_l(u_l)] + loss(y, v_{L+1}) is convex in (u₁, …, u_L) for every activation, as
½‖·‖² + Ψ = f: least squares in boxes has its own solver, all else goes to Newton's method on all of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, Linear, Softmax
from torchlift.convex.activations import get as get_activation
from torchlift.convex.activations.base import Scalar
from torchlift.convex.solvers.bounds import Bounds
from torchlift.convex.solvers.fixed import Pulled, newton_states
from torchlift.convex.solvers.quadratic import quadratic
from torchlift.convex.solvers.solved import tell
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.penalties import Classical
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.methods.lifted.solvers.xstep import quadratic_domain

if TYPE_CHECKING:
    from torchlift.methods.lifted.network import Network

_FIX = "raise mu, or give float64"


def stacked_quadratic(
    weights: Sequence[Tensor], biases: Sequence[Tensor], x: Tensor, mus: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """H and g of Σ_l μ_l‖u_l − W_l u_{l−1} − b_l‖² = ½uᵀHu − gᵀu + const, u = (u₁, …, u_L)."""
    sizes = [len(w) for w in weights[: len(mus)]]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    h = x.new_zeros(ends[-1], ends[-1])
    g = x.new_zeros(len(x), ends[-1])
    for layer, (here, mu) in enumerate(zip(spans, mus, strict=True)):
        w, b = weights[layer], biases[layer]
        h[here, here] += 2 * mu * torch.eye(sizes[layer], dtype=x.dtype, device=x.device)
        g[:, here] += 2 * mu * b
        if layer == 0:
            g[:, here] += 2 * mu * x @ w.mT
            continue
        below = spans[layer - 1]
        h[below, below] += 2 * mu * w.mT @ w
        h[here, below] -= 2 * mu * w
        h[below, here] -= 2 * mu * w.mT
        g[:, below] -= 2 * mu * b @ w
    return h, g


def joint_x(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    x: Tensor,
    y: Tensor | None,
    mus: Sequence[float],
    loss: str = "mse",
    *,
    activation: str | Activation | Sequence[Activation] = "relu",
) -> list[Tensor]:
    """argmin of loss(y, W_{L+1}u_L + b) + Σ_l μ_l[‖u_l − W_l u_{l−1} − b_l‖² + 2Ψ_l(u_l)], l = 1..L.

    Plain sums: the squared loss is ‖y − v‖², cross-entropy −Σ y log softmax(v); Ψ keeps u_l in dom σ_l.
    Without y the output is free and the last pair of weights is not used. Returns [u₁, …, u_L]; warns where
    it stops short.
    """
    if len(weights) != len(mus) + 1 or len(biases) != len(weights):
        raise TorchliftError(
            f"joint_x: {len(mus)} hidden layers need {len(mus) + 1} weights and biases, "
            f"got {len(weights)} and {len(biases)}"
        )
    if y is not None and loss not in ("mse", "cross_entropy"):
        raise TorchliftError(f"joint_x: no loss {loss!r}; known: mse, cross_entropy")
    single = isinstance(activation, str | Activation)
    acts = [get_activation(activation)] * len(mus) if single else list(activation)
    output = Softmax() if loss == "cross_entropy" else Linear()
    target = None if y is None else as_targets(y, x.new_empty(len(x), len(biases[-1])), output)
    bounds = _stacked_bounds(acts, [x.new_empty(0, len(w)) for w in weights[:-1]])
    if bounds is not None and (target is None or loss == "mse"):
        return _least_squares(weights, biases, x, target, mus, bounds)
    maps = [_dense(w.double(), b.double()) for w, b in zip(weights, biases, strict=True)]
    scale = 2.0 if loss == "mse" else 1.0
    top = None if target is None else _Top(output, scale, target.double())
    problem = _Joint(maps, acts, [2 * mu for mu in mus], x.double(), top)
    return [u.to(x) for u in problem.solve(problem.forward())]  # rounding in float32 hides the last digits


def _least_squares(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    x: Tensor,
    target: Tensor | None,
    mus: Sequence[float],
    bounds: Bounds,
) -> list[Tensor]:
    h, g = stacked_quadratic(weights, biases, x, mus)
    if target is not None:
        top = slice(len(h) - weights[-1].shape[1], len(h))
        h[top, top] += 2 * weights[-1].mT @ weights[-1]
        g[:, top] += 2 * (target - biases[-1]) @ weights[-1]
    stacked = tell("joint_x", quadratic(h, g, bounds), _FIX)
    return list(stacked.split([len(w) for w in weights[:-1]], dim=1))


def _stacked_bounds(acts: Sequence[Activation], likes: Sequence[Tensor]) -> Bounds | None:
    """The box of all states, or None where one is none."""
    bounds = [quadratic_domain(act, like) for act, like in zip(acts, likes, strict=True)]
    boxes = [b for b in bounds if b is not None and b.total is None]
    if len(boxes) < len(bounds):
        return None
    return Bounds(torch.cat([b.lo for b in boxes]), torch.cat([b.hi for b in boxes]))


def joint_states(network: "Network", x: Tensor, y: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """The hidden states of a classical network that minimize its energy together, from ``states``.

    Any activation, dense or convolutional; y as ``network.targets`` gives it. Warns where it stops short.
    """
    if not all(isinstance(p, Classical) for p in network.penalties[:-1]):
        raise TorchliftError("joint states are convex with penalty='classical' only; else use order=…")
    if any(layer.pooled for layer in network.layers):
        raise TorchliftError("joint states: maxima between layers are not convex; use average pooling")
    if not states:
        return []
    maps: list[_Map] = []
    for layer, like in zip(network.layers, [x, *states], strict=True):
        maps.append(_Map(*layer.frozen(like), layer.norm_of(like)))
    acts = [p.activation for p in network.penalties[:-1]]
    top = _Top(network.penalties[-1].activation, network.mus[-1], y)
    return _Joint(maps, acts, network.mus[:-1], x, top).solve(list(states))


@dataclasses.dataclass(frozen=True)
class _Map:
    """u ↦ A u + b, its adjoint, ‖A‖."""

    forward: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    norm: float


def _dense(weight: Tensor, bias: Tensor) -> _Map:
    norm = float(torch.linalg.matrix_norm(weight, 2))
    return _Map(lambda u: u @ weight.mT + bias, lambda out: out @ weight, norm)


@dataclasses.dataclass(frozen=True)
class _Top:
    """The loss: weight·B(target, v)."""

    activation: Activation
    weight: float
    target: Tensor


class _Joint(Pulled):
    """g(u) = Σ_l w_l(½‖v_l‖² − ⟨u_l, v_l⟩) + loss, beside Σ_l w_l f_l(u_l); all layers' states in a row."""

    def __init__(
        self,
        maps: Sequence[_Map],
        acts: Sequence[Activation],
        weights: Sequence[float],
        x: Tensor,
        top: _Top | None,
    ) -> None:
        self.maps, self.acts, self.weights, self.x, self.top = maps, acts, weights, x, top
        self.shapes = [tuple(u.shape[1:]) for u in self.forward(x[:1])]
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        self.activation = self.stacked = _Stacked(tuple(acts), tuple(self.shapes))
        self.mu = torch.cat([x.new_full((n,), w) for n, w in zip(sizes, weights, strict=True)])
        self.momentum = 1.0
        self.curvature = self._curvature()

    def forward(self, x: Tensor | None = None) -> list[Tensor]:
        """The states of the forward pass."""
        u, states = self.x if x is None else x, list[Tensor]()
        for layer, act in zip(self.maps, self.acts, strict=False):
            u = act(layer.forward(u))
            states.append(u)
        return states

    def solve(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The minimizer, layer by layer."""
        tolerance = 1e-9 if self.x.dtype == torch.float64 else 1e-5
        start = torch.cat([u.flatten(1) for u in states], 1)
        solution = tell("joint states", newton_states(self, start, tolerance=tolerance), _FIX)
        return self.stacked.split(solution)

    def _curvature(self) -> float:
        """A bound on the curvature of the smooth part, by blocks."""
        norms = [layer.norm for layer in self.maps]
        weights = [*self.weights, 0.0]
        rows = [
            w + w * norms[i] * (i > 0) + weights[i + 1] * (norms[i + 1] ** 2 + norms[i + 1])
            for i, w in enumerate(self.weights)
        ]
        if self.top is not None:
            rows[-1] += self.top.weight * self.top.activation.lipschitz * norms[-1] ** 2
        return 1.01 * max(rows)

    def _pull(self, x: Tensor) -> Tensor:
        """∇g: w_l(−v_l) + w_{l+1}Aᵀ(v_{l+1} − u_{l+1}), and the loss's for the last."""
        states, pulls = self.stacked.split(x), list[Tensor]()
        below = [self.x, *states]
        values = [layer.forward(u) for layer, u in zip(self.maps, below, strict=True)]
        for i, w in enumerate(self.weights):
            pull = -w * values[i]
            if i + 1 < len(states):
                pull = pull + self.weights[i + 1] * self.maps[i + 1].adjoint(values[i + 1] - states[i + 1])
            elif self.top is not None:
                slope = self.top.activation.grad_v(self.top.target, values[-1])
                pull = pull + self.top.weight * self.maps[-1].adjoint(slope)
            pulls.append(pull.flatten(1))
        return torch.cat(pulls, 1)

    def pull(self, x: Tensor) -> Tensor:
        """∇g(u); there is no v beside it."""
        return self._pull(x)

    def bend(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """d ↦ ∇²g(u)d: −w_l A_l d_{l−1} + w_{l+1}Aᵀ(A d_l − d_{l+1}), and the loss's."""
        states = self.stacked.split(x)
        origins = [m.forward(torch.zeros_like(u)) for m, u in zip(self.maps, [self.x, *states], strict=True)]
        top = None
        if self.top is not None:
            top = self.top.activation.jacobian(self.maps[-1].forward(states[-1]))

        def product(direction: Tensor) -> Tensor:
            pieces, images = self.stacked.split(direction), list[Tensor]()
            moved = [
                m.forward(d) - origin for m, d, origin in zip(self.maps[1:], pieces, origins[1:], strict=True)
            ]
            for i, w in enumerate(self.weights):
                image = -w * moved[i - 1] if i else torch.zeros_like(pieces[0])
                if i + 1 < len(pieces):
                    image = image + self.weights[i + 1] * self.maps[i + 1].adjoint(moved[i] - pieces[i + 1])
                elif self.top is not None and top is not None:
                    image = image + self.top.weight * self.maps[-1].adjoint(top(moved[-1]))
                images.append(image.flatten(1))
            return torch.cat(images, 1)

        return product

    def step(self, x: Tensor) -> Tensor:
        """u ← prox of (w/L)Ψ at u − ∇/L, by the prox of f: P_{τ/(1−τ)}(· /(1−τ)), τ = w/L."""
        smooth = self._pull(x) + self.mu * x
        tau = self.mu / self.curvature
        return self.activation.prox((x - smooth / self.curvature) / (1 - tau), tau / (1 - tau))

    def rows(self, index: Tensor) -> "_Joint":
        """Some samples."""
        top = None if self.top is None else dataclasses.replace(self.top, target=self.top.target[index])
        return _Joint(self.maps, self.acts, self.weights, self.x[index], top)


@dataclasses.dataclass(frozen=True)
class _Stacked(Activation):
    """The activations of all layers on their states in a row; values are summed over a sample."""

    acts: tuple[Activation, ...]
    shapes: tuple[tuple[int, ...], ...]
    vector = True

    def split(self, x: Tensor) -> list[Tensor]:
        """Layer by layer, in the layers' shapes."""
        pieces = x.split([torch.Size(shape).numel() for shape in self.shapes], 1)
        return [piece.reshape(len(x), *shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def _each(self, do: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        pieces = zip(self.acts, *[self.split(t) for t in tensors], strict=True)
        return torch.cat([do(*piece).flatten(1) for piece in pieces], 1)

    def _sum(self, do: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return self._each(do, *tensors).sum(1)

    @property
    def lipschitz(self) -> float:
        """The largest."""
        return max(act.lipschitz for act in self.acts)

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return self._each(lambda act, piece: act(piece), v)

    def potential(self, u: Tensor) -> Tensor:
        """Σ f."""
        return self._sum(lambda act, piece: act.potential(piece), u)

    def conjugate(self, v: Tensor) -> Tensor:
        """Σ f*."""
        return self._sum(lambda act, piece: act.conjugate(piece), v)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """Σ B."""
        return self._sum(lambda act, a, b: act.penalty(a, b), u, v)

    def grad_potential(self, u: Tensor) -> Tensor:
        """f'."""
        return self._each(lambda act, piece: act.grad_potential(piece), u)

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """P_μ, μ given entry by entry and constant in each layer."""
        steps = torch.as_tensor(mu, dtype=w.dtype, device=w.device).expand(w.shape)
        return self._each(lambda act, piece, step: act.prox(piece, step.flatten()[0]), w, steps)

    def project(self, u: Tensor) -> Tensor:
        """Onto the domains."""
        return self._each(lambda act, piece: act.project(piece), u)

    def jacobian(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """Layer by layer."""
        each = [act.jacobian(piece) for act, piece in zip(self.acts, self.split(v), strict=True)]

        def product(direction: Tensor) -> Tensor:
            pieces = zip(each, self.split(direction), strict=True)
            return torch.cat([jacobian(piece).flatten(1) for jacobian, piece in pieces], 1)

        return product

    def diagonal(self, v: Tensor) -> Tensor:
        """The diagonal of J."""
        return self._each(lambda act, piece: act.diagonal(piece), v)
