"""Learned mixed precision (SMOL): noise as wide as a weight's grid, under a price per bit."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Fit, Node, Problem, WeightLift, matches, named
from torchlift.errors import SelectionError, TorchliftError
from torchlift.lifts import gates
from torchlift.lifts.activation_precision import ActivationPrecision
from torchlift.lifts.grids import ADAM, allocate, auto_scale, bits, integer, logit, most_bits, on_grid, to_grid

__all__ = ["Noisy", "Precision", "allocate", "bits", "logit", "to_grid"]

Granularity = Literal["weight", "block", "channel", "tensor"]

GONE = 1e4
"""The logit of an entry that was cut before: it has no price and no gradient."""


class Noisy(Node):
    """w = v + c σ(s) ⊙ ε with ε ~ U(±1) drawn at every step; penalty λ Σ log₂(1 + e^(−s)).

    c is the weight's scale, |v| ≤ c (2 − σ(s)) after every step. For good: c Q(v/c, p), p = [1 + log₂(1 + e^(−s))].
    """

    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"logit": {"optimizer": ADAM, "weight_decay": 0.0}}
    settled: ClassVar[tuple[str, ...]] = ("weight", "logit")
    scale: Tensor
    count: Tensor

    def __init__(self, weight: Tensor, grain: tuple[int, ...], scale: float, lift: "Precision") -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.logit = nn.Parameter(weight.new_full(gates.tiles(weight.shape, grain), float(logit(lift.p_init))))
        self.register_buffer("scale", weight.new_tensor(scale))
        self.register_buffer("count", gates.gather(torch.ones_like(weight), grain))
        self.grain, self.lift, self.shift = grain, lift, 0.0
        self.price: list[Dial] = []  # a list: of the nodes that share a price, the first registers it

    def over(self, values: Tensor) -> Tensor:
        """A value per logit, spread so that it meets the weight."""
        return gates.spread(values, self.weight.shape, self.grain)

    def forward(self) -> Tensor:
        """A draw while training, the weight itself otherwise."""
        if not self.training:
            return self.weight
        noise = torch.empty_like(self.weight).uniform_(-1, 1)
        return torch.addcmul(self.weight, self.over(self.scale * torch.sigmoid(self.logit)), noise)

    def surrogate(self) -> Callable[[], Tensor] | None:
        """The forward at the draw that comes next."""
        if not self.training:
            return None
        with torch.random.fork_rng(devices=[]):
            noise = torch.empty_like(self.weight).uniform_(-1, 1)
        return lambda: self.weight + self.over(self.scale * torch.sigmoid(self.logit)) * noise

    def hold(self, mask: Tensor) -> None:
        """What is gone has no price."""
        with torch.no_grad():
            self.count.copy_(gates.gather(mask.to(self.count), self.grain))
            self.logit.masked_fill_(self.count == 0, GONE)

    def penalty(self) -> Tensor | float:
        """λ Σ (p − 1) over the entries."""
        price = self.price[0]() if self.price else self.lift.strength
        if isinstance(price, float) and not price:
            return 0.0
        above = nn.functional.softplus(-self.logit)
        total = above.sum() if self.logit.shape == self.weight.shape else (above * self.count).sum()
        return total * (price / 0.6931471805599453)

    def constrain(self) -> None:
        """Clip v to ±c (2 − σ(s))."""
        bound = self.over(self.scale * (2 - torch.sigmoid(self.logit)))
        torch.minimum(torch.maximum(self.weight, -bound, out=self.weight.data), bound, out=self.weight.data)

    def precision(self) -> Tensor:
        """The integer bits of every entry, as the projection would allocate them; 0 where it is zero."""
        with torch.no_grad():
            raw = integer(bits(self.logit) + self.shift, self.lift.rounding, self.lift.levels)
            raw = raw.clamp(1, most_bits(self.weight.dtype))
            found = self.over(raw).expand(self.weight.shape)
            if not self.lift.zero:
                return found.masked_fill(self.over(self.count == 0), 0)
            unit = self.weight / self.scale
            if self.lift.levels is None:
                return allocate(unit, found)
            lost = gates.gather((unit - to_grid(unit, found)).square(), self.grain)
            gone = gates.gather(unit.square(), self.grain) <= lost
            return found.masked_fill(self.over(gone), 0)

    def project(self) -> Tensor:
        """c Q(v/c, p)."""
        return on_grid(self.weight.detach(), self.precision(), self.scale)


@dataclasses.dataclass(frozen=True)
class Precision(WeightLift):
    """min over v, s of E f(v + c σ(s) ⊙ ε) + λ Σ log₂(1 + e^(−s)), ε ~ U(±1); then w = c Q(v/c, p(s)).

    SMOL (Savarese et al. 2022; thesis Algorithm 5, lines 1–9). p = 1 + [log₂(1 + e^(−s))] bits are the odd
    multiples of 2^(1−p) below 2. ``strength`` is λ, per bit of every entry. ``p_init`` > 1 is where p starts.

    granularity: a precision per ``"weight"``, per ``"block"`` (``size`` × ``size`` of the first two dimensions),
    per ``"channel"`` (row) or per ``"tensor"``. ``rounding``: ``"floor"`` as in the source's experiments, or
    ``"round"`` as in its algorithm box. ``zero``: an entry goes to zero, at no bits, where that is nearer.
    ``levels``: the bits there are, (1, 2, 4, 8) for hardware; zeros are then whole groups. ``scale``: c, by
    default per tensor from its weights (8 significant bits, so that products with the grid are exact).
    ``activations=True`` also learns the precision of activations (:class:`ActivationPrecision`). ``skip``: a
    glob of weights to leave alone; the source leaves 1×1 shortcuts.

    More fields than most lifts: each is a choice the source makes, or the hardware.
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
            raise TorchliftError(f"granularity {self.granularity!r} is not known: weight, block, channel, tensor.")
        if self.rounding not in ("floor", "round"):
            raise TorchliftError(f"rounding {self.rounding!r} is not known: 'floor' or 'round'.")
        if self.strength < 0:
            raise TorchliftError(f"strength is a price per bit, at least 0; got {self.strength}.")
        if self.scale != "auto" and not 0 < float(self.scale) < float("inf"):
            raise TorchliftError(f"scale is 'auto' or a positive number, got {self.scale!r}.")
        if self.levels is not None and not (self.levels and all(0 < p <= 16 for p in self.levels)):
            raise TorchliftError(f"levels are bits from 1 to 16, such as (1, 2, 4, 8); got {self.levels!r}.")

    @property
    def preserving(self) -> bool:
        """The weights start where they are; activations are clipped."""
        return not self.activations

    @property
    def reshapes(self) -> bool:
        """Quantised activations are modules of their own."""
        return self.activations

    @property
    def inner(self) -> ActivationPrecision:
        """The lift of the activations."""
        return ActivationPrecision(p_init=self.p_init, strength=self.strength, rounding=self.rounding)

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """As for all weights, less those to skip; what is not real or not finite is refused by name."""
        for name, p in named(problem).items():
            picked = p.ndim > 1 and matches(name, self.where) and not matches(name, self.skip or "")
            if picked and not p.is_floating_point():
                raise TorchliftError(f"{name.label} is {p.dtype}: only real weights have bits; use skip=.")
            if picked and not bool(torch.isfinite(p).all()):
                raise TorchliftError(f"{name.label} is not finite: mend or retrain it before it is quantised.")
        known = {n: w for n, w in super().eligible(problem).items() if not matches(n, self.skip or "")}
        if not known:
            raise SelectionError(
                "the model has nothing to quantise: no trainable matrix or kernel "
                "(vectors such as biases and norms stay as they are); widen where= or skip=."
            )
        return known

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
        scale = auto_scale(weight, self.p_init) if self.scale == "auto" else float(self.scale)
        return Noisy(weight, grains[self.granularity], scale, self)

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem whose chosen weights, and activations if asked, are noisy."""
        return super().lift(self.inner.lift(problem, fit) if self.activations else problem, fit)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The problem with weights, and activations if asked, on their grids."""
        plain = super().project(problem, fit)
        return self.inner.project(plain, fit) if self.activations else plain
