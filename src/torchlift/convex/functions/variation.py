"""Total variation α‖D x‖: isotropic or not, in one or two dimensions, colors coupled or apart.

Rudin, Osher & Fatemi 1992; colors coupled as in Blomgren & Chan 1998 and Bresson & Chan 2008.
"""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.functions.base import ConvexError, Function, Weight, check_weight, samples
from torchlift.convex.functions.norms import Box, GroupL1
from torchlift.convex.operators import Differences


@dataclasses.dataclass(frozen=True)
class TV(Function):
    """α Σ ‖(D x)ᵢ‖: samples of shape (n,) are signals, (h, w) images, (c, h, w) images with channels.

    ``isotropic`` takes the Euclidean length of a pixel's differences, else the sum of their sizes.
    ``coupled`` lets the channels of a pixel share one length; ``dims`` says how many dimensions are space.
    """

    alpha: float = 1.0
    isotropic: bool = True
    coupled: bool = True
    dims: int | None = None

    def __post_init__(self) -> None:
        check_weight("TV", self.alpha)

    def analysis(self, ndim: int) -> tuple[Differences, GroupL1]:
        """D and the norm of D x, for batches with ``ndim`` dimensions."""
        dims = self.dims or min(ndim - 1, 2)
        channels = tuple(range(2, ndim - dims + 1)) if self.coupled else ()
        if ndim - 1 < dims or ndim - 1 > dims + 1:
            raise ConvexError(f"TV: samples have {ndim - 1} dimensions; known are (n,), (h, w) and (c, h, w)")
        groups = ((1, *channels) if self.isotropic and dims > 1 else channels) or ()
        return Differences(dims), GroupL1(self.alpha, groups)

    def fn(self, x: Tensor) -> Tensor:
        """α Σ ‖(D x)ᵢ‖."""
        operator, norm = self.analysis(x.ndim)
        return norm.fn(operator.A(x))

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """To rounding: see :func:`denoise`."""
        operator, norm = self.analysis(x.ndim)
        least = 64 * torch.finfo(x.dtype).eps * samples(x).square().sum(1)
        return denoise(operator, norm, x, torch.zeros_like(operator.A(x)), gamma, least)[0]


def denoise(
    operator: Differences,
    norm: GroupL1,
    x: Tensor,
    q: Tensor,
    gamma: Weight,
    tol: Tensor,
    *,
    box: Box | None = None,
    cap: int = 5000,
) -> tuple[Tensor, Tensor]:
    """argmin over z (in the box) of ½‖z − x‖² + γ‖Dz‖, and the dual variable, to a gap of ``tol``.

    z = clamp(x − γDᵀq), q from the given one by accelerated projected gradient with restart (Beck & Teboulle
    2009). The gap γ(‖Dz‖ − ⟨q, Dz⟩) bounds ½‖z − argmin‖². It is looked at
    every ten steps of at most ``cap``.
    """
    size = max(operator.norm(x) ** 2, 1e-30)
    point, weight = q, 1.0

    def primal(dual: Tensor) -> Tensor:
        z = x - gamma * operator.A_adjoint(dual)
        return z if box is None else box.prox(z)

    for k in range(1, cap + 1):
        new = norm.prox_conjugate(point + operator.A(primal(point)) / (gamma * size), 1.0)
        turned = float(((point - new) * (new - q)).sum()) > 0
        following = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        beta, weight = (0.0, 1.0) if turned else ((weight - 1) / following, following)
        point, q = new + beta * (new - q), new
        if k % 10 == 0:
            slope = operator.A(primal(q))
            if bool((gamma * (norm.fn(slope) - samples(q * slope).sum(1)) <= tol).all()):
                break
    return primal(q), q
