"""How far around the data a deep and a shallow network agree."""

import torch
from torch import Tensor, nn

from torchlift.analyze.neurons import model_of
from torchlift.errors import DataError
from torchlift.loss import call, output


@torch.no_grad()
def radius(
    deep: nn.Module,
    shallow: nn.Module,
    x: Tensor,
    *,
    tolerance: float = 1e-5,
    directions: int = 32,
    largest: float = 100.0,
    steps: int = 30,
    seed: int = 0,
) -> Tensor:
    """How far from each input the two networks still agree: the neighborhood of Proposition A.4, measured.

    Along ``directions`` random lines through every input, outputs are compared at distances from ``largest``
    · 10⁻⁶ up, in ``steps`` equal ratios; the radius is the last distance before the first at which they
    differ by more than ``tolerance`` (relative to the largest output). A measurement, not a bound: a lucky
    draw of directions can miss a nearer change.
    """
    if not isinstance(x, Tensor):
        raise DataError(f"radius moves inputs along lines: x must be a tensor, got {type(x).__name__}.")
    deep, shallow = model_of(deep).eval(), model_of(shallow).eval()
    x = x.to(next(deep.parameters()))
    generator = torch.Generator().manual_seed(seed)
    distances = largest * torch.logspace(-6, 0, steps, dtype=torch.float64)
    nearest = torch.zeros(len(x), dtype=torch.float64)
    for number, point in enumerate(x):
        lines = torch.randn(directions, point.numel(), generator=generator, dtype=torch.float64)
        lines = (lines / lines.norm(dim=1, keepdim=True)).to(x).view(directions, *point.shape)
        for distance in distances.tolist():
            moved = point + distance * lines
            want = output(call(shallow, moved))
            off = float((output(call(deep, moved)) - want).abs().max())
            if off > tolerance * max(1.0, float(want.abs().max())):
                break
            nearest[number] = distance
    return nearest
