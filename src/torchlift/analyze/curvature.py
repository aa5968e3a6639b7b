"""The signature of the Hessian: how many directions curve up, down, and not at all."""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from torchlift.core import Batch, Problem
from torchlift.errors import TorchliftError
from torchlift.tree import like

Product = Callable[[Tensor], Tensor]
CRITICAL = 1e-3
"""A point is nearly critical where the balanced gradient is below this part of the largest curvature."""


class Inertia(NamedTuple):
    """The number of positive, negative and zero eigenvalues."""

    positive: int
    negative: int
    zero: int


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the Hessian at the present weights, and the line between zero and not.

    ``values`` are those of D H D, D a positive diagonal that balances the rows: a congruence, which keeps all
    signs (Sylvester) and lifts small curvatures of badly scaled weights out of the rounding of large ones.
    """

    values: Tensor
    """Ascending; of a large problem only those of the range, the others being zero, or Ritz values."""
    size: int
    """How many eigenvalues there are in all."""
    boundary: float
    """Eigenvalues of a smaller modulus count as zero: rounding, or what is left of the gradient."""
    ratio: float
    """The smallest that counts over the largest that does not. Near 1 the line is arbitrary."""
    gradient: float
    """The largest entry of the gradient: the signature speaks of critical points."""
    weights: Tensor | None = None
    """How many eigenvalues each Ritz value stands for; None where the values are the eigenvalues."""

    @property
    def inertia(self) -> Inertia:
        """The signature; of Ritz values an estimate."""
        weights = torch.ones_like(self.values) if self.weights is None else self.weights
        positive = round(float(weights[self.values > self.boundary].sum()))
        negative = round(float(weights[self.values < -self.boundary].sum()))
        return Inertia(positive, negative, self.size - positive - negative)


class Options(TypedDict, total=False):
    """How :func:`spectrum` goes about it."""

    tolerance: float | None
    similarities: int
    largest: int
    rank: int
    probes: int
    seed: int


def inertia(problem: Problem, batch: Batch, **options: Unpack[Options]) -> Inertia:
    """(positive, negative, zero) eigenvalues of the Hessian of ``problem(batch)``; see :func:`spectrum`.

    Critical lifting preserves the first two at critical points of the shallow network, where both factors
    have full rank. Elsewhere it does not: the paper's Proposition 4.3 for "any parameter" is too strong.
    """
    return spectrum(problem, batch, **options).inertia


def spectrum(
    problem: Problem,
    batch: Batch,
    *,
    tolerance: float | None = None,
    similarities: int = 0,
    largest: int = 1000,
    rank: int = 256,
    probes: int = 4,
    seed: int = 0,
) -> Spectrum:
    """The eigenvalues of D ∇² problem(batch) D, in float64, with a line between zero and not.

    The line is 1000 · n · ε · max |λ| or, at a point that is nearly critical, the largest entry of the
    balanced gradient D g where that is larger: it has curvatures of that size, a critical point none.
    Up to ``largest`` parameters the whole Hessian is diagonalized; with ``similarities`` the mean is taken
    over so many random orthogonal similarity transformations (Bai et al., 2024, appendix C: 100). Beyond,
    only products with vectors are formed: a random basis of the Hessian's range, doubled until it holds all
    of it (Halko et al., 2011), at most ``rank`` wide, and D = 1. If that is not all, the counts are
    estimates: Lanczos' method for ``rank`` steps from each of ``probes`` random vectors; what such a basis
    cannot tell from zero counts as zero. ``tolerance``: a line of your own.
    """
    exact = copy.deepcopy(problem).double().eval()
    parameters = [p for p in exact.parameters() if p.requires_grad]
    size = sum(p.numel() for p in parameters)
    loss = exact(like(batch, parameters[0]))
    slopes = torch.autograd.grad(
        loss, parameters, create_graph=True, materialize_grads=True, allow_unused=True
    )
    gradient = torch.cat([slope.reshape(-1) for slope in slopes])

    def product(vector: Tensor) -> Tensor:
        again = torch.autograd.grad(
            gradient, parameters, vector, retain_graph=True, materialize_grads=True, allow_unused=True
        )
        return torch.cat([piece.reshape(-1) for piece in again])

    if not gradient.requires_grad:
        raise TorchliftError("the loss has no second derivative: its gradient is constant.")
    slope, weights = gradient.detach(), None
    if size <= largest:
        dense = torch.stack([product(row) for row in torch.eye(size).to(gradient)])
        dense, scale = balanced((dense + dense.T) / 2)
        values, slope = eigenvalues(dense, similarities, seed), scale * slope
    elif (few := range_eigenvalues(product, size, rank, seed, gradient)) is not None:
        values = few
    else:
        values, weights = ritz_values(product, size, min(rank, size), probes, seed, gradient)
    line = boundary(values, size, slope) if tolerance is None else tolerance
    ratio, largest_slope = gap(values.abs(), line), float(gradient.detach().abs().max())
    return Spectrum(values, size, line, ratio, largest_slope, weights)


def balanced(matrix: Tensor, sweeps: int = 10) -> tuple[Tensor, Tensor]:
    """D H D and D with the largest entry of every row near 1 (Ruiz, 2001); rows of rounding stay."""
    scale = torch.ones(len(matrix)).to(matrix)
    rounding = len(matrix) * torch.finfo(matrix.dtype).eps * matrix.abs().max()
    alive = matrix.abs().amax(1) > rounding
    for _ in range(sweeps):
        largest = (scale[:, None] * matrix * scale).abs().amax(1)
        scale = scale * torch.where(alive, largest, 1.0).rsqrt()
    return scale[:, None] * matrix * scale, scale


def eigenvalues(matrix: Tensor, similarities: int, seed: int) -> Tensor:
    """Ascending; the mean over so many random orthogonal similarity transformations, if any."""
    if not similarities:
        return torch.linalg.eigvalsh(matrix)
    generator = torch.Generator().manual_seed(seed)
    values: list[Tensor] = []
    for _ in range(similarities):
        q = torch.linalg.qr(torch.randn(matrix.shape, generator=generator, dtype=torch.float64))[0].to(matrix)
        values.append(torch.linalg.eigvalsh(q @ matrix @ q.T))
    return torch.stack(values).mean(0)


def range_eigenvalues(product: Product, size: int, rank: int, seed: int, gradient: Tensor) -> Tensor | None:
    """The eigenvalues that are not zero, if there are fewer than ``rank``: H = Q (QᵀHQ) Qᵀ."""
    generator = torch.Generator().manual_seed(seed)
    width, images = min(16, rank), list[Tensor]()
    while True:
        while len(images) < width:
            images.append(product(torch.randn(size, generator=generator, dtype=torch.float64).to(gradient)))
        basis, sizes, _ = torch.linalg.svd(torch.stack(images, 1), full_matrices=False)
        kept = int((sizes > 1e-10 * sizes[0]).sum())
        if kept < width:
            basis = basis[:, :kept]
            small = basis.T @ torch.stack([product(column) for column in basis.T], 1)
            return torch.linalg.eigvalsh((small + small.T) / 2)
        if width >= min(rank, size):
            return None
        width = min(2 * width, rank)


def ritz_values(
    product: Product, size: int, steps: int, probes: int, seed: int, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Ritz values and the number of eigenvalues each stands for (stochastic Lanczos quadrature).

    A Ritz value of residual r is within r of an eigenvalue: one of a smaller modulus may have either sign,
    and is set to zero.
    """
    generator = torch.Generator().manual_seed(seed)
    rules: list[tuple[Tensor, Tensor]] = []
    for _ in range(probes):
        start = torch.randn(size, generator=generator, dtype=torch.float64).to(gradient)
        basis = (start / start.norm())[None]
        diagonal: list[Tensor] = []
        beside: list[Tensor] = []
        while True:
            image = product(basis[-1])
            diagonal.append(image @ basis[-1])
            for _ in range(2):  # twice, or rounding lets the basis turn back
                image = image - basis.T @ (basis @ image)
            beside.append(image.norm())
            scale = torch.stack([*diagonal, *beside]).abs().max()
            if len(diagonal) == steps or float(beside[-1]) < 1e-10 * float(scale):
                break
            basis = torch.cat([basis, (image / beside[-1])[None]])
        off = torch.stack(beside)
        small = torch.diag(torch.stack(diagonal)) + torch.diag(off[:-1], 1) + torch.diag(off[:-1], -1)
        values, vectors = torch.linalg.eigh(small)
        resolved = values.abs() > (off[-1] * vectors[-1]).abs()
        rules.append((torch.where(resolved, values, 0.0), vectors[0].square() * size / probes))
    values, weights = (torch.cat(some) for some in zip(*rules, strict=True))
    order = values.argsort()
    return values[order], weights[order]


def boundary(values: Tensor, size: int, gradient: Tensor) -> float:
    """Below this a curvature is rounding or, where g is nearly zero, owed to what is left of it."""
    top, left = float(values.abs().max()), float(gradient.abs().max())
    rounding = 1000 * size * torch.finfo(values.dtype).eps * top
    return max(rounding, left) if left < CRITICAL * top else rounding


def gap(sizes: Tensor, line: float) -> float:
    """The smallest |eigenvalue| above the line over the largest below it; infinite where none is below."""
    above, below = sizes[sizes > line], sizes[sizes <= line]
    if not len(above):
        return 1.0
    return float(above.min() / below.max()) if len(below) and float(below.max()) > 0 else math.inf
