"""min over u of B(y, A u + b) + αJ(u), one layer: convex, solved to a gap (spec/lifted §5.1–5.2)."""

import dataclasses
import functools

import torch
from torch import Tensor

from torchlift.convex.descent import Certificate, Descent, Gap, Stopping, condat_vu, fista
from torchlift.convex.functions import L1, L2, TV, Box, Boxed, Function, denoise, samples
from torchlift.convex.operators import Identity
from torchlift.inversion.fidelity import Fidelity, boxed_variation_gap, separable_gap, variation_gap
from torchlift.inversion.result import InversionError

_INNER = 100
_SHARE = 0.01
_LEAST = 1e-8


def solve(
    fidelity: Fidelity,
    reg: Function,
    box: Box | None,
    start: Tensor,
    stopping: Stopping,
    *,
    method: str = "auto",
    dual: Tensor | None = None,
    certify: bool = True,
) -> Descent:
    """The minimizer: "fista" with αJ + box by its prox, "pdhg" (Condat–Vũ) with J by its conjugate.

    "auto" is FISTA wherever αJ + box has a prox: few products with A, which is what costs.
    """
    together = joint_function(reg, box)
    method = auto_solver(reg, box) if method == "auto" else method
    gap = _gap(fidelity, reg, box) if certify else None
    if method == "pdhg":
        operator, norm = reg.analysis(start.ndim) if isinstance(reg, TV) else (Identity(), reg)
        return condat_vu(
            fidelity, operator, norm, start, constraint=box, dual=dual, gap=gap, stopping=stopping
        )
    if isinstance(reg, TV):
        relative = 1e-5 if gap is not None else max(stopping.tol**2 / 10, torch.finfo(start.dtype).eps)
        return _with_inner_steps(fidelity, Warm(reg, box, start, dual, relative), start, gap, stopping)
    if together is None:
        raise InversionError(
            f"tl.invert: {type(reg).__name__} in a box has no prox; use method='pdhg' or no box"
        )
    return fista(fidelity, together, start, gap=gap, stopping=stopping)


def auto_solver(reg: Function, box: Box | None) -> str:
    """The solver behind "auto"."""
    return "fista" if joint_function(reg, box) is not None or isinstance(reg, TV) else "pdhg"


def joint_function(reg: Function, box: Box | None) -> Function | None:
    """αJ + box as one function with a prox in closed form, or None."""
    if box is None:
        return reg
    return Boxed(reg, box) if isinstance(reg, L1 | L2) else None


def _gap(fidelity: Fidelity, reg: Function, box: Box | None) -> Gap | None:
    """The gap, where it has a formula."""
    if isinstance(reg, TV):
        if box is None:
            return functools.partial(variation_gap, fidelity, reg)
        return functools.partial(boxed_variation_gap, fidelity, reg, box) if box.bounded else None
    together = joint_function(reg, box)
    return (
        functools.partial(separable_gap, fidelity, together)
        if isinstance(together, L1 | L2 | Boxed)
        else None
    )


class Warm(Function):
    """αTV + box whose prox starts from the dual variable of the last one and is as exact as is useful."""

    def __init__(self, tv: TV, box: Box | None, like: Tensor, dual: Tensor | None, relative: float) -> None:
        self.tv, self.box = tv, box
        self.operator, self.norm = tv.analysis(like.ndim)
        self.q = torch.zeros_like(self.operator.A(like)) if dual is None else dual
        self.relative = relative
        self.allowed: Tensor | None = None

    def fn(self, x: Tensor) -> Tensor:
        """αTV(x) in the box."""
        return self.tv.fn(x) + (0.0 if self.box is None else self.box.fn(x))

    def prox(self, x: Tensor, gamma: float | Tensor = 1.0) -> Tensor:
        """At most a hundred dual steps."""
        allowed = self.relative * samples(x).square().sum(1) if self.allowed is None else self.allowed
        z, self.q = denoise(self.operator, self.norm, x, self.q, gamma, allowed, box=self.box, cap=_INNER)
        return z


def _with_inner_steps(
    fidelity: Fidelity, warm: Warm, start: Tensor, gap: Gap | None, stopping: Stopping
) -> Descent:
    """FISTA; an error ε of the inner problem costs Lε, which is kept at a share of the last gap.

    The gap itself sees errors of q at first order: where it stops falling, the share is cut.
    """
    share, before = _SHARE, float("inf")

    def certified(x: Tensor, dual: Tensor | None) -> Certificate:
        nonlocal share, before
        del dual
        assert gap is not None
        certificate = gap(x, warm.q)
        if bool(torch.isfinite(certificate.gap).all()):
            size = float(certificate.gap.sum())
            share = max(share / 4, _LEAST) if size > 0.8 * before else share
            before = size
            warm.allowed = (
                share * certificate.gap.clamp(min=certificate.rounding) / max(fidelity.lipschitz, 1e-30)
            )
        return certificate

    solution = fista(fidelity, warm, start, gap=None if gap is None else certified, stopping=stopping)
    return dataclasses.replace(solution, dual=warm.q)
