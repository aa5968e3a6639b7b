"""How rough the function is that a network has learnt: its RKHS norm, its critical samples."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Problem
from torchlift.errors import TorchliftError
from torchlift.loss import call, evaluating, output

SmoothnessMeasure = Literal["rkhs", "critical_sample_ratio"]
OutputFunction = Callable[[Tensor], Tensor]


def complexity(model: nn.Module, x: Tensor, kind: SmoothnessMeasure = "rkhs", **options: Any) -> float:
    """Γ(f) of the function a network computes on the points x (Neural lifting, section 4.1).

    ``"rkhs"``: :func:`rkhs_norm` of the outputs at x; options ``bandwidth``, ``jitter``, ``limit``.
    ``"critical_sample_ratio"``: :func:`critical_sample_ratio`; options ``radius``, ``steps``, ``step``,
    ``noise``, ``seed``. Both take ``batch``, the samples per evaluation of the model, which is in
    evaluation mode for the time and returned as it was.
    """
    measures: dict[str, Callable[..., float]] = {
        "rkhs": of_outputs,
        "critical_sample_ratio": critical_sample_ratio,
    }
    if kind not in measures:
        raise TorchliftError(f"complexity kind {kind!r} is not known: {', '.join(measures)}.")
    with evaluating(model):
        return measures[kind](function(model), x, **options)


def function(model: nn.Module) -> OutputFunction:
    """The model, or the network of a problem, as a map from points to rows of numbers."""
    predict = model.predict if isinstance(model, Problem) else lambda x: call(model, x)
    return lambda x: output(predict(x)).flatten(1)


def of_outputs(f: OutputFunction, x: Tensor, *, batch: int = 1024, **options: Any) -> float:
    """The RKHS norm from the outputs at x, evaluated in batches."""
    with torch.no_grad():
        values = torch.cat([f(piece) for piece in x.split(batch)])
    return rkhs_norm(x.flatten(1), values, **options)


def rkhs_norm(
    x: Tensor, values: Tensor, *, bandwidth: float | None = None, jitter: float = 1e-6, limit: int = 2000
) -> float:
    """√tr(Yᵀ (K + jitter I)⁻¹ Y) with K_ij = exp(−|x_i − x_j|² / 2h²): the smoothest function through (x, Y).

    The norm of the minimum-norm interpolant: a lower bound on the norm of any function with these
    values, growing towards it with the number of points, so compare at equal x only. ``bandwidth`` h is
    the median distance between points unless given. Computed in float64 by Cholesky; more than ``limit``
    points are cut into chunks of that size whose squared norms are averaged.
    """
    if len(x) > limit:
        whole = [(a, b) for a, b in zip(x.split(limit), values.split(limit), strict=True) if len(a) == limit]
        squares = [rkhs_norm(a, b, bandwidth=bandwidth, jitter=jitter, limit=limit) ** 2 for a, b in whole]
        return (sum(squares) / len(squares)) ** 0.5
    points, targets = x.double(), values.double()
    distances = torch.cdist(points, points)
    h = bandwidth or float(distances[distances > 0].median())
    kernel = torch.exp(-(distances**2) / (2 * h**2))
    kernel.diagonal().add_(jitter)
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(kernel), targets, upper=False)
    return float(whitened.norm())


def critical_sample_ratio(
    f: OutputFunction,
    x: Tensor,
    *,
    radius: float = 0.1,
    steps: int = 20,
    step: float | None = None,
    noise: float = 0.1,
    batch: int = 1024,
    seed: int = 0,
) -> float:
    """The part of the x with another class somewhere in the box |x̂ − x|_∞ ≤ radius, found by search.

    Arpit et al., 2017, Algorithm 1: x̃ ← clip(x̃ − step · sign(∂f_k/∂x̃) + noise · step · η) with f_k the
    score of the class at x and η normal; ``step`` is radius / 4 unless given. A single output is read as
    a binary score. What the search does not find is not counted: a lower bound.
    """
    generator = torch.Generator().manual_seed(seed)
    size = step if step is not None else radius / 4
    critical_samples = [
        near_critical(f, piece, radius, steps, size, noise, generator) for piece in x.split(batch)
    ]
    return float(torch.cat(critical_samples).double().mean())


def near_critical(
    f: OutputFunction,
    x: Tensor,
    radius: float,
    steps: int,
    step: float,
    noise: float,
    generator: torch.Generator,
) -> Tensor:
    """Which x have a critical sample near, by ``steps`` of noisy descent on the score of their own class."""
    moved, crossed = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    with torch.no_grad():
        label = scores(f(x)).argmax(1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        own = scores(f(moved)).gather(1, label[:, None]).sum()
        (slope,) = torch.autograd.grad(own, moved)
        kick = torch.randn(x.shape, generator=generator).to(x) * noise
        moved = (moved.detach() + step * (kick - slope.sign())).clamp(x - radius, x + radius)
        with torch.no_grad():
            crossed |= scores(f(moved)).argmax(1) != label
    return crossed


def scores(values: Tensor) -> Tensor:
    """One score per class; a single output s stands for (−s, s)."""
    return torch.cat([-values, values], 1) if values.shape[1] == 1 else values
