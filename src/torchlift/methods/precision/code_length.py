"""Weights on grids with learned steps, under the price of their code."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Node, Problem, SteppedDial, Stored, WeightLift
from torchlift.core.stored import weight_of
from torchlift.errors import TorchliftError

ADAM = partial(torch.optim.Adam, lr=1e-2)
"""The optimizer of log s, whatever trains the weights."""

SEEN = 0.5
"""How often each level counts as seen before any weight is looked at, so that none has an infinite length."""

START = 0.01
"""What a steered code costs at first, per bit per weight on average."""

SHORT = 0.9
"""Of its course: where a code is shorter, steps are taken back."""


GOAL_EVERY = 10
"""Of two hundred instants: how often the goal is asked for."""


class PricedLevels(Node):
    """w = s [clip(v/s, −h, h)], s = e^τ; penalty λ Σ ℓ(v/s), ℓ(k) = −log₂ of the part of the weights at k.

    Between two levels ℓ is a straight line, so that a weight feels which of its neighbors is cheaper; it is
    read again from the levels after every step. Straight through the rounding; the step has LSQ's gradient.
    """

    options: Mapping[str, Mapping[str, Any]] = {"log_step": {"optimizer": ADAM, "weight_decay": 0.0}}
    unliftable: ClassVar[tuple[str, ...]] = ("weight", "log_step")
    lengths: Tensor
    alive: Tensor | None

    def __init__(self, weight: Tensor, bits: int, strength: float) -> None:
        super().__init__()
        self.high = 2 ** (bits - 1) - 1
        self.weight = nn.Parameter(weight.clone())
        size = weight.abs().sum() / weight.count_nonzero().clamp(min=1)
        start = (2 * size / math.sqrt(self.high)).clamp(min=torch.finfo(weight.dtype).tiny)
        self.log_step = nn.Parameter(start.log())
        self.register_buffer("lengths", weight.new_zeros(2 * self.high + 1))
        self.register_buffer("alive", None)
        self.strength, self.dead_zone = strength, 0.0
        self.price: list[Dial] = []  # a list: of the nodes that share a price, the first registers it
        self.constrain()

    def ratio(self) -> Tensor:
        """v/s, where it can go."""
        return (self.weight / self.log_step.exp()).clamp(-self.high, self.high)

    def forward(self) -> Tensor:
        """The quantized weight."""
        ratio = self.ratio()
        return (ratio + (torch.round(ratio) - ratio).detach()) * self.log_step.exp()

    def hold(self, mask: Tensor) -> None:
        """What was cut before is at zero, and pays what the others' zeros do."""
        self.alive = mask.clone()
        self.constrain()

    def surrogate(self) -> Callable[[], Tensor]:
        """Roundings fixed where they are."""
        ratio = self.ratio().detach()
        error = torch.round(ratio) - ratio
        return lambda: (self.ratio() + error) * self.log_step.exp()

    def penalty(self) -> Tensor | float:
        """λ Σ ℓ(v/s)."""
        price = self.price[0]() if self.price else self.strength
        if isinstance(price, float) and not price:
            return 0.0
        position = self.ratio() + self.high
        below = position.detach().floor().clamp(max=2 * self.high - 1)
        index = below.long()
        first, second = self.lengths[index], self.lengths[index + 1]
        return price * (first + (second - first) * (position - below)).sum()

    @torch.no_grad()
    def constrain(self) -> None:
        """The code follows the levels."""
        seen = self.histogram() + SEEN
        self.lengths.copy_(torch.log2(seen.sum() / seen))

    @torch.no_grad()
    def levels(self) -> Tensor:
        """The nearest levels; 0 within half a step and the dead zone."""
        ratio = self.ratio()
        zero = ratio.abs() <= 0.5 + self.dead_zone
        if self.alive is not None:
            zero |= ~self.alive.bool()
        return torch.where(zero, 0.0, torch.round(ratio)).to(torch.int32)

    @torch.no_grad()
    def shrink_step(self, change: float) -> None:
        """log s by so much less, as long as no weight is clipped."""
        least = (self.weight.abs().max() / self.high).log()
        self.log_step.copy_(torch.maximum(self.log_step + change, torch.minimum(least, self.log_step)))

    def histogram(self) -> Tensor:
        """How many weights each level has."""
        return torch.bincount(self.levels().flatten() + self.high, minlength=2 * self.high + 1).double()

    def code_bits(self) -> float:
        """n H: what an ideal code of the levels takes."""
        seen = self.histogram()
        return float(torch.special.xlogy(seen, seen.sum() / seen.clamp(min=1)).sum() / math.log(2))

    def stored(self) -> Stored:
        """The levels and s."""
        return Stored(self.levels(), self.log_step.detach().exp())

    def project(self) -> Tensor:
        """The quantized weight."""
        return weight_of(self.stored(), self.weight.dtype)


class RateControl(SteppedDial):
    """λ(t): raised while the code is longer than its course, lowered while it is shorter.

    The course falls geometrically from the first length to the goal over ``course`` of a fit; at two hundred
    instants λ ← λ √(length / course), by a quarter at most. Steps keep their speed when λ falls, and a code
    of zeros alone has no gradient: where it is shorter than nine tenths of its course, all steps shrink,
    too. ``goal`` is asked again every ``GOAL_EVERY`` instants: what a file holds beside the code changes with
    the levels. λ and the goal are saved with the problem.
    """

    first: Tensor
    goal: Tensor

    def __init__(self, nodes: list[PricedLevels], goal: Callable[[], float], course: float = 0.6) -> None:
        start = START / sum(node.weight.numel() for node in nodes)
        super().__init__(start, 200)
        self.nodes, self.ask, self.course = [nodes], goal, course  # in a list: nodes stay where they are
        self.register_buffer("first", torch.tensor(code_bits_per_weight(nodes), dtype=torch.float64))
        self.register_buffer("goal", torch.tensor(goal(), dtype=torch.float64))

    def move(self, t: float, before: int) -> None:
        """Correct λ."""
        if int(self.instant) // GOAL_EVERY > before // GOAL_EVERY:
            self.goal.fill_(self.ask())
        goal = float(self.goal)
        wanted = goal * (float(self.first) / goal) ** (1 - min(1.0, t / self.course))
        excess = max(code_bits_per_weight(self.nodes[0]), 0.25 * wanted) / wanted
        self.value.mul_(min(1.25, max(0.8, math.sqrt(excess))))
        if excess < SHORT:
            for node in self.nodes[0]:
                node.shrink_step(0.25 * math.log(excess))


def priced(problem: Problem) -> list[PricedLevels]:
    """The weights of a lifted problem."""
    return [node for node in problem.modules() if isinstance(node, PricedLevels)]


def code_bits_per_weight(nodes: list[PricedLevels]) -> float:
    """Bits of the code per weight, as a projection would leave them now."""
    return sum(node.code_bits() for node in nodes) / sum(node.weight.numel() for node in nodes)


@dataclasses.dataclass(frozen=True)
class CodeLength(WeightLift):
    """min over v, s of f(s [clip(v/s, −h, h)]) + λ Σ ℓ(v/s), h = 2^(bits−1) − 1, ℓ the code length of levels.

    Rate and distortion: one step s per tensor is learned, and a weight pays the bits that an entropy coder
    takes for its level, so that the common levels, zero above all, draw weights in. ``strength`` is λ, per
    bit of the code; ``bits`` bounds the levels, not the code.
    """

    where: str = "*weight"
    bits: int = 4
    strength: float = 1e-7

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 12:
            raise TorchliftError(f"bits is a whole number from 2 to 12, got {self.bits!r}.")
        if not 0 <= self.strength < math.inf:
            raise TorchliftError(f"strength is a price per bit, at least 0; got {self.strength}.")

    @property
    def preserving(self) -> bool:
        """No: training starts on the grid."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A weight under its code's price each."""
        return {name: PricedLevels(weight, self.bits, self.strength) for name, weight in weights.items()}
