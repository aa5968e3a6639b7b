"""One layer's states, all else fixed: NNLS, and boxes and the simplex alike (Askari et al. 2018)."""

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, Clip, Linear, Simplex
from torchlift.convex.activations import get as get_activation
from torchlift.convex.solvers.bounds import Bounds
from torchlift.convex.solvers.quadratic import QuadraticMethod, quadratic
from torchlift.convex.solvers.solved import Solved, tell


def quadratic_domain(activation: Activation, like: Tensor) -> Bounds | None:
    """The bounds of a state whose potential is ½‖u‖² on a box or the simplex, else None."""
    p = like.shape[-1]

    def full(value: float) -> Tensor:
        return torch.full((p,), value, dtype=like.dtype, device=like.device)

    if isinstance(activation, Linear):
        return Bounds(full(-torch.inf), full(torch.inf))
    if isinstance(activation, Clip):
        return Bounds(full(activation.lo), full(activation.hi))
    if isinstance(activation, Simplex):
        return Bounds(full(0.0), full(torch.inf), total=1.0)
    return None


def nnls(
    W: Tensor,
    b: Tensor,
    u_next: Tensor,
    v: Tensor,
    mu_next: float,
    mu: float,
    *,
    activation: str | Activation = "relu",
    method: QuadraticMethod = "auto",
    start: Tensor | None = None,
) -> Tensor:
    """argmin over x ≥ 0 of μ₊‖u₊ − Wx − b‖² + μ‖x − v‖², for every row of v; warns where it stops short.

    W is out × in. Other activations whose domain is a box or the simplex replace x ≥ 0 by that domain.
    """
    if mu <= 0 or mu_next <= 0:
        raise ValueError(f"nnls: the weights must be positive, got mu_next={mu_next}, mu={mu}")
    bounds = quadratic_domain(get_activation(activation), v)
    if bounds is None:
        raise ValueError(
            f"nnls: {activation!r} has no box or simplex domain; use linear, relu, clip or simplex"
        )
    solved = _solve(W, b, u_next, v, mu_next, mu, bounds, method, start)
    if not solved.converged and v.dtype != torch.float64:  # H is too badly conditioned for single precision
        first, wide = None if start is None else start.double(), bounds.to(torch.float64)
        pair = u_next.double(), v.double()
        solved = _solve(W.double(), b.double(), *pair, mu_next, mu, wide, method, first)
        solved = solved._replace(x=solved.x.to(v))
    return tell("nnls", solved, "raise mu, or give float64")


def _solve(
    W: Tensor,
    b: Tensor,
    u_next: Tensor,
    v: Tensor,
    mu_next: float,
    mu: float,
    bounds: Bounds,
    method: QuadraticMethod,
    start: Tensor | None,
) -> Solved:
    """In the precision of its arguments: H = μ₊WᵀW + μI, g = μ₊Wᵀ(u₊ − b) + μv."""
    h = mu_next * W.mT @ W
    h.diagonal().add_(mu)
    g = mu_next * (u_next - b) @ W + mu * v
    return quadratic(h, g, bounds, method=method, start=start)
