"""Centered kernel alignment: how alike two representations of the same inputs are."""

from torch import Tensor

from torchlift.errors import DataError


def unbiased_hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741  (K and L of the paper)
    """HSIC₁ (Song et al., 2012; Nguyen et al., 2021, eq. 3): unbiased, so it may be averaged over batches."""
    n = len(k)
    k, l = k - k.diag().diag(), l - l.diag().diag()  # noqa: E741  (K and L of the paper)
    sums = k.sum() * l.sum() / ((n - 1) * (n - 2))
    return ((k * l).sum() + sums - 2 * (k.sum(0) @ l.sum(0)) / (n - 2)) / (n * (n - 3))


def cka(x: Tensor, y: Tensor, *, batch: int | None = None) -> float:
    """Linear CKA = ‖Y′ᵀX′‖² / (‖X′ᵀX′‖ ‖Y′ᵀY′‖), X′ and Y′ centered: 1 only if Y is affine in X.

    Samples are rows; further axes are features. With ``batch`` it is estimated from batches of that size, by
    sums of the unbiased HSIC₁ (Nguyen et al., 2021): the same whatever the batch size, up to noise.
    """
    x, y = x.detach().flatten(1).double(), y.detach().flatten(1).double()
    if len(x) != len(y):
        raise DataError(f"cka compares representations of the same inputs, got {len(x)} and {len(y)} rows.")
    if batch is None:
        return whole_cka(x - x.mean(0), y - y.mean(0))
    if batch < 4:
        raise DataError(f"the unbiased estimate needs batches of at least 4, got {batch}.")
    pieces = [(a, b) for a, b in zip(x.split(batch), y.split(batch), strict=True) if len(a) >= 4]
    grams = [(a @ a.T, b @ b.T) for a, b in pieces]
    xy, xx, yy = (
        sum(float(unbiased_hsic(*pair(g))) for g in grams)
        for pair in (lambda g: g, lambda g: (g[0], g[0]), lambda g: (g[1], g[1]))
    )
    return quotient(xy, (max(xx, 0.0) * max(yy, 0.0)) ** 0.5)


def whole_cka(x: Tensor, y: Tensor) -> float:
    """Of centered representations, through whichever product is smaller."""
    if x.shape[1] + y.shape[1] <= 2 * len(x):
        return quotient(float((y.T @ x).square().sum()), float((x.T @ x).norm() * (y.T @ y).norm()))
    k, l = x @ x.T, y @ y.T  # noqa: E741  (K and L of the paper)
    return quotient(float((k * l).sum()), float(k.norm() * l.norm()))


def quotient(above: float, below: float) -> float:
    """NaN for a representation that does not vary."""
    return above / below if below > 0 else float("nan")
