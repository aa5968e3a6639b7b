"""min ½xᵀHx − gᵀx over a box or the simplex: coordinate sweeps and splitting, batched."""

import math

import torch
from torch import Tensor

from torchlift.lifted.solvers.bounds import Bounds, project
from torchlift.lifted.solvers.gradient import Spectrum


def coordinate_descent(
    h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, *, tolerance: float, steps: int
) -> Tensor:
    """Cyclic sweeps x_j ← clip(x_j − (Hx − g)_j/H_jj): monotone; boxes only."""
    if bounds.total is not None:
        raise ValueError("method 'coordinate' keeps to boxes; for the simplex use gradient, admm or pivot")
    x = start.mT.contiguous()  # one row per coordinate: the sweep reads whole rows
    lo, hi, target = bounds.lo.expand(len(h)), bounds.hi.expand(len(h)), g.mT
    for _ in range(steps):
        before = x.clone()
        for j in range(len(h)):
            slope = h[j] @ x - target[j]
            x[j] = (x[j] - slope / h[j, j]).clamp(float(lo[j]), float(hi[j]))
        if float((x - before).abs().max()) <= tolerance * float(x.abs().max()):
            break
    return x.mT.contiguous()


def admm(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    start: Tensor,
    spectrum: Spectrum,
    *,
    tolerance: float,
    steps: int,
) -> Tensor:
    """x = (H + rI)⁻¹(g + r(z − w)), z = P(x + w), w ← w + x − z, with r = √(mL), relaxed by 1.6."""
    r = math.sqrt(max(spectrum.low, 1e-12 * spectrum.high) * spectrum.high)
    eye = torch.eye(len(h), dtype=h.dtype, device=h.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(h + r * eye))
    z, dual = start, torch.zeros_like(start)
    for _ in range(steps):
        x = (g + r * (z - dual)) @ inverse
        relaxed = torch.lerp(z, x, 1.6)
        new = project(relaxed + dual, bounds)
        dual = dual + relaxed - new
        gap = torch.maximum((new - x).abs().max(), (new - z).abs().max())
        z = new
        if float(gap) <= tolerance * float(z.abs().max()):
            break
    return z
