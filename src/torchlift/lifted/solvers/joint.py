"""All hidden states at once, where the penalties are jointly convex (Askari et al. 2018)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, Softmax
from torchlift.convex.activations import get as get_activation
from torchlift.lifted.solvers.bounds import Bounds, project
from torchlift.lifted.solvers.descent import constant_momentum
from torchlift.lifted.solvers.output import as_targets
from torchlift.lifted.solvers.quadratic import quadratic
from torchlift.lifted.solvers.xstep import quadratic_domain


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
    """argmin of loss(y, W_{L+1}u_L + b) + Σ_l μ_l‖u_l − W_l u_{l−1} − b_l‖² over u_l in dom σ, l = 1..L.

    Plain sums: the squared loss is ‖y − v‖², cross-entropy −Σ y log softmax(v). Without y the output is
    free and the last pair of weights is not used. Returns [u₁, …, u_L].
    """
    if len(weights) != len(mus) + 1 or len(biases) != len(weights):
        raise ValueError(
            f"joint_x: {len(mus)} hidden layers need {len(mus) + 1} weights and biases, "
            f"got {len(weights)} and {len(biases)}"
        )
    h, g = stacked_quadratic(weights, biases, x, mus)
    single = isinstance(activation, str | Activation)
    acts = [get_activation(activation)] * len(mus) if single else list(activation)
    bounds = _stacked_bounds(acts, [g[:, : len(w)] for w in weights[:-1]])
    top = slice(len(h) - weights[-1].shape[1], len(h))
    if y is None:
        stacked = quadratic(h, g, bounds)
    elif loss == "mse":
        target = as_targets(y, g.new_empty(len(x), len(biases[-1])))
        h[top, top] += 2 * weights[-1].mT @ weights[-1]
        g[:, top] += 2 * (target - biases[-1]) @ weights[-1]
        stacked = quadratic(h, g, bounds)
    elif loss == "cross_entropy":
        target = as_targets(y, g.new_empty(len(x), len(biases[-1])))
        stacked = _with_cross_entropy(h, g, bounds, top, weights[-1], biases[-1], target)
    else:
        raise ValueError(f"joint_x: no loss {loss!r}; known: mse, cross_entropy")
    return list(stacked.split([len(w) for w in weights[:-1]], dim=1))


def _stacked_bounds(acts: Sequence[Activation], likes: Sequence[Tensor]) -> Bounds:
    bounds = [quadratic_domain(act, like) for act, like in zip(acts, likes, strict=True)]
    boxes = [b for b in bounds if b is not None and b.total is None]
    if len(boxes) < len(bounds):
        raise ValueError(f"joint_x: {acts} are not all boxes; it takes linear, relu and clip")
    return Bounds(torch.cat([b.lo for b in boxes]), torch.cat([b.hi for b in boxes]))


def _with_cross_entropy(
    h: Tensor, g: Tensor, bounds: Bounds, top: slice, weight: Tensor, bias: Tensor, target: Tensor
) -> Tensor:
    """½uᵀHu − gᵀu + cross-entropy: majorise the loss by ℓ/2‖v − T‖² (ℓ = ½), solve the QP, extrapolate.

    Every QP has the same matrix, and the curvature ratio that sets the pace is that of the loss alone.
    """
    softmax = Softmax()
    model = h.clone()
    model[top, top] += softmax.lipschitz * weight.mT @ weight
    u = quadratic(model, g, bounds)
    point, beta = u, constant_momentum(_loss_condition(h, model))
    tolerance = 1e-10 if u.dtype == torch.float64 else 1e-5
    for _ in range(500):
        v = point[:, top] @ weight.mT + bias
        pull = softmax.lipschitz * (v - bias) - softmax.grad_v(target, v)
        right = g.clone()
        right[:, top] += pull @ weight
        new = quadratic(model, right, bounds, start=project(point, bounds))
        moved = float((new - u).abs().max()) / max(1.0, float(new.abs().max()))
        point, u = torch.lerp(u, new, 1 + beta), new
        if moved <= tolerance:
            break
    return u


def _loss_condition(h: Tensor, model: Tensor) -> float:
    """The largest μ with model ⪯ μ·H: how far the loss's curvature may fall below its majorant's."""
    factor = torch.linalg.cholesky(h)
    inner = torch.linalg.solve_triangular(factor, model, upper=False)
    inner = torch.linalg.solve_triangular(factor, inner.mT, upper=False)
    return float(torch.linalg.eigvalsh(inner)[-1])
