"""Learned mixed precision (SMOL): noise as wide as a weight's grid, under a price per bit."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from torchlift.core import Fit, Node, Problem, WeightLift, matches, named
from torchlift.errors import SelectionError, TorchliftError
from torchlift.methods.precision.activation_precision import ActivationPrecision
from torchlift.methods.precision.grids import allocate, auto_scale, bits, logit, to_grid
from torchlift.methods.precision.noise import Noisy, Whole

__all__ = ["Noisy", "Precision", "allocate", "bits", "logit", "to_grid"]

Granularity = Literal["weight", "block", "channel", "tensor"]


@dataclasses.dataclass(frozen=True)
class Precision(WeightLift):
    """min over v, s of E f(v + c σ(s) ⊙ ε) + λ Σ log₂(1 + e^(−s)), ε ~ U(±1); then w = c Q(v/c, p(s)).

    SMOL (Savarese et al. 2022; thesis Algorithm 5, lines 1–9). p = 1 + [log₂(1 + e^(−s))] bits are the odd
    multiples of 2^(1−p) below 2. ``strength`` is λ, per bit of every entry. ``p_init`` > 1 is where p starts.

    granularity: a precision per ``"weight"``, per ``"block"`` (``size`` × ``size`` of the first two
    dimensions), per ``"channel"`` (row) or per ``"tensor"``. ``rounding``: ``"floor"`` as in the source's
    experiments, or ``"round"`` as in its algorithm box. ``zero``: an entry goes to zero, at no bits, where
    that is nearer. ``levels``: the bits there are, (1, 2, 4, 8) for hardware; zeros are then whole groups.
    ``scale``: c, by default per tensor from its weights; the first step clips a weight in a thousand.
    ``activations=True`` also learns the precision of activations (:class:`ActivationPrecision`). ``skip``: a
    glob of weights to leave alone; the source leaves 1×1 shortcuts.

    More than eight fields: each is a choice the source makes, or the hardware.
    """

    where: str = "*weight"
    granularity: Granularity = "weight"
    p_init: float = 8
    strength: float = 1e-7
    rounding: Literal["floor", "round"] = "floor"
    zero: bool = True
    scale: Literal["auto"] | float = "auto"
    activations: bool = False
    size: int = 16
    levels: tuple[int, ...] | None = None
    skip: str | None = None
    prunes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        logit(self.p_init)  # p_init <= 1 raises
        if self.p_init > 16:
            raise TorchliftError(f"p_init is at most 16 bits, got {self.p_init}: 8 is the source's.")
        if self.granularity not in ("weight", "block", "channel", "tensor"):
            raise TorchliftError(
                f"granularity {self.granularity!r} is not known: weight, block, channel, tensor."
            )
        if self.rounding not in ("floor", "round"):
            raise TorchliftError(f"rounding {self.rounding!r} is not known: 'floor' or 'round'.")
        if self.strength < 0:
            raise TorchliftError(f"strength is a price per bit, at least 0; got {self.strength}.")
        if self.scale != "auto" and not 0 < float(self.scale) < float("inf"):
            raise TorchliftError(f"scale is 'auto' or a positive number, got {self.scale!r}.")
        if self.levels is not None and not (self.levels and all(0 < p <= 16 for p in self.levels)):
            raise TorchliftError(f"levels are bits from 1 to 16, such as (1, 2, 4, 8); got {self.levels!r}.")

    @property
    def reversible(self) -> bool:
        """No: the projection rounds."""
        return False

    @property
    def preserving(self) -> bool:
        """The weights start where they are; activations are clipped."""
        return not self.activations

    @property
    def reshapes(self) -> bool:
        """Quantized activations are modules of their own."""
        return self.activations

    @property
    def inner(self) -> ActivationPrecision:
        """The lift of the activations."""
        return ActivationPrecision(p_init=self.p_init, strength=self.strength, rounding=self.rounding)

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """As for all weights, less those to skip; raises for what is not real or not finite, by name."""
        for name, p in named(problem).items():
            picked = p.ndim > 1 and matches(name, self.where) and not matches(name, self.skip or "")
            if picked and not p.is_floating_point():
                raise TorchliftError(f"{name.label} is {p.dtype}: only real weights have bits; use skip=.")
            if picked and not bool(torch.isfinite(p).all()):
                raise TorchliftError(
                    f"{name.label} is not finite: mend or retrain it before it is quantized."
                )
        selected = {n: w for n, w in super().eligible(problem).items() if not matches(n, self.skip or "")}
        if not selected:
            raise SelectionError(
                "the model has nothing to quantize: no trainable matrix or kernel "
                "(vectors such as biases and norms stay as they are); widen where= or skip=."
            )
        return selected

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Noise for each weight."""
        return {name: self.node(weight) for name, weight in weights.items()}

    def node(self, weight: Tensor) -> Noisy:
        """The noisy weight."""
        shape = tuple(weight.shape)
        grains = {
            "weight": (1,) * weight.ndim,
            "block": (self.size, self.size, *shape[2:]),
            "channel": (1, *shape[1:]),
            "tensor": shape,
        }
        scale = auto_scale(weight) if self.scale == "auto" else float(self.scale)
        whole = Whole(self.rounding, self.zero, self.levels)
        return Noisy(weight, grains[self.granularity], scale, self.p_init, self.strength, whole)

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem whose chosen weights, and activations if chosen, are noisy."""
        return super().lift(self.inner.lift(problem, fit) if self.activations else problem, fit)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The problem with weights, and activations if chosen, on their grids."""
        plain = super().project(problem, fit)
        return self.inner.project(plain, fit) if self.activations else plain
