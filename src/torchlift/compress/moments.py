"""What a layer's least-squares problem needs of the calibration data: second moments, summed batch by batch.

    G = Σ x̂ x̂ᵀ,   T = Σ x̂ yᵀ,   Σ x̂,   Σ y,   Σ y²

x̂ is what the compressed network feeds the layer (patches of a convolution, time steps of a recurrent
layer), y what
the original layer gave at the same place. Sums over processes are sums of these.
"""

import dataclasses

import torch
import torch.distributed as dist
from torch import Tensor

DOUBLE = 512
"""Layers of at most so many inputs are summed in double precision."""

STRIPES = 8


@dataclasses.dataclass(eq=False)
class LayerMoments:
    """Sums over rows, for each group of a grouped layer: n inputs, r outputs."""

    xx: Tensor
    """(groups, n, n)"""
    xy: Tensor
    """(groups, n, r)"""
    x: Tensor
    y: Tensor
    yy: Tensor
    count: Tensor
    """(groups,): how many rows."""

    @classmethod
    def zeros(
        cls, groups: int, inputs: int, outputs: int, device: torch.device | None = None, *, gram: bool = True
    ) -> "LayerMoments":
        """Nothing summed yet; without ``gram``, G has no room."""
        dtype = torch.float64 if inputs <= DOUBLE else torch.float32
        wide = inputs if gram else 0

        def empty(*shape: int) -> Tensor:
            return torch.zeros(groups, *shape, dtype=dtype, device=device)

        count = torch.zeros(groups, dtype=torch.float64, device=device)
        return cls(
            empty(wide, wide),
            empty(inputs, outputs),
            empty(inputs),
            empty(outputs),
            empty(outputs),
            count,
        )

    def without_targets(self) -> "LayerMoments":
        """Nothing summed yet, and no room for the Gram matrices."""
        groups, inputs, outputs = self.xy.shape
        return LayerMoments.zeros(groups, inputs, outputs, self.xx.device, gram=False)

    def add(self, x: Tensor, y: Tensor, *, gram: bool = True) -> None:
        """Rows more: x (groups, rows, n) and y (groups, rows, r); rows of NaN fill up shorter groups.

        Without ``gram``, Σ x xᵀ is summed elsewhere.
        """
        filled = x[..., :1].isnan()
        if x.shape[0] > 1 and bool(filled.any()):
            x, y = x.masked_fill(filled, 0), y.masked_fill(filled, 0)
            self.count -= filled.sum((1, 2))
        x, y = x.to(self.xx), y.to(self.xx)
        if gram:
            add_gram(self.xx, x)
        self.xy += x.mT @ y
        self.x += x.sum(1)
        self.y += y.sum(1)
        self.yy += y.square().sum(1)
        self.count += x.shape[1]

    def reduce(self) -> "LayerMoments":
        """The sums over all processes, where there are several."""
        if dist.is_available() and dist.is_initialized():
            for field in dataclasses.fields(self):
                dist.all_reduce(getattr(self, field.name))
        return self

    def centered(self, bias: bool) -> tuple[Tensor, Tensor, Tensor]:
        """G (in its place), T and Σ y² about the means, or about zero where no bias takes the means up."""
        if bias:
            n = self.count.to(self.xx)[:, None]
            self.xx.baddbmm_(self.x[:, :, None], (self.x / n)[:, None, :], alpha=-1)
        return self.xx, *self.centered_targets(bias)

    def centered_targets(self, bias: bool) -> tuple[Tensor, Tensor]:
        """T and Σ y² of :meth:`centered`."""
        if not bias:
            return self.xy, self.yy
        n = self.count.to(self.xx)[:, None]
        xy = self.xy - self.x[:, :, None] * (self.y / n)[:, None, :]
        return xy, (self.yy - self.y.square() / n).clamp(min=0)

    def means(self) -> tuple[Tensor, Tensor]:
        """The means of x and y."""
        n = self.count.to(self.x)[:, None]
        return self.x / n, self.y / n


def add_gram(total: Tensor, x: Tensor) -> None:
    """total += xᵀx, computing blocks on and above the diagonal only where that saves time."""
    size = x.shape[-1]
    if size < 1024:
        total += x.mT @ x
        return
    step = -(-size // STRIPES)
    for start in range(0, size, step):
        stripe = x[..., start : start + step].mT @ x[..., start:]
        total[..., start : start + step, start:] += stripe
        total[..., start + step :, start : start + step] += stripe[..., step:].mT
