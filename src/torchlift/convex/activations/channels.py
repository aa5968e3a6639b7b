"""Vector activations over the channels of images: dimension 1, as torch has them."""

import dataclasses
from collections.abc import Callable

from torch import Tensor

from torchlift.convex.activations.base import Activation, Scalar


@dataclasses.dataclass(frozen=True)
class Channelwise(Activation):
    """A vector activation on dimension 1 instead of the last: the softmax of a segmentation, say.

    Rows (two dimensions) are as the inner activation has them.
    """

    inner: Activation
    vector = True

    def _along(self, v: Tensor) -> Tensor:
        return v.movedim(1, -1)

    def _back(self, u: Tensor) -> Tensor:
        return u.movedim(-1, 1)

    @property
    def lipschitz(self) -> float:
        """That of the inner one."""
        return self.inner.lipschitz

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return self._back(self.inner(self._along(v)))

    def potential(self, u: Tensor) -> Tensor:
        """One number per position."""
        return self.inner.potential(self._along(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """One number per position."""
        return self.inner.conjugate(self._along(v))

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """One number per position."""
        return self.inner.penalty(self._along(u), self._along(v))

    def grad_potential(self, u: Tensor) -> Tensor:
        """f'(u)."""
        return self._back(self.inner.grad_potential(self._along(u)))

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """P_μ(w)."""
        return self._back(self.inner.prox(self._along(w), mu))

    def project(self, u: Tensor) -> Tensor:
        """Onto the inner one's domain."""
        return self._back(self.inner.project(self._along(u)))

    def jacobian(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """That of the inner one, moved."""
        inner = self.inner.jacobian(self._along(v))
        return lambda direction: self._back(inner(self._along(direction)))

    def diagonal(self, v: Tensor) -> Tensor:
        """The diagonal of J(v)."""
        return self._back(self.inner.diagonal(self._along(v)))
