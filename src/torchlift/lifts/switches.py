"""Gates as parts of a lifted problem: logits, their annealing, and the weights behind them."""

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Node, Problem
from torchlift.lifts import gates


class Stairs(Dial):
    """β_e = start · (end / start)^(e / (E − 1)) in epoch e = 0, …, E − 1: the published schedule."""

    def __init__(self, start: float, end: float, steps: int) -> None:
        super().__init__(start, end)
        self.steps = steps

    def turn(self, t: float) -> None:
        """Set the value of the epoch that progress t lies in."""
        epoch = min(math.floor(t * self.steps + 1e-9), self.steps - 1)
        super().turn(epoch / max(self.steps - 1, 1))


class Switches(nn.Module):
    """Logits s and their gates; one set may govern several weights."""

    gate: gates.Shape

    def __init__(
        self, logit: Tensor, beta: Dial, gate: gates.Shape, *, inclusive: bool, scale: float
    ) -> None:
        super().__init__()
        self.logit = nn.Parameter(logit)
        self.beta, self.gate, self.inclusive, self.scale = beta, gate, inclusive, scale

    def soft(self) -> Tensor:
        """scale · b(β, s)."""
        opened = gates.soft(self.gate, self.beta(), self.logit)
        return opened if self.scale == 1.0 else self.scale * opened

    def open(self) -> Tensor:
        """The hard decision, s ≥ 0 or s > 0: this, not float zeros, counts what is left."""
        return self.logit >= 0 if self.inclusive else self.logit > 0


class Gate(Node):
    """w = v ⊙ b(β, s) while optimising, v ⊙ 1{s ≥ 0} for good; penalty λ ‖b(β, s)‖₁."""

    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"logit": {"weight_decay": 0.0}}
    carries: ClassVar[str | None] = "weight"

    def __init__(self, weight: Tensor, switches: Switches, grain: tuple[int, ...], strength: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.switches, self.grain, self.strength = switches, grain, strength

    @property
    def logit(self) -> nn.Parameter:
        """The logits s, one per tile of the weight."""
        return self.switches.logit

    def over(self, values: Tensor) -> Tensor:
        """Values of the logits' shape, spread so that they multiply the weight."""
        values = values.reshape(gates.tiles(self.weight.shape, self.grain))
        return gates.spread(values, self.weight.shape, self.grain)

    def forward(self) -> Tensor:
        """The soft weight."""
        return self.over(self.switches.soft()) * self.weight

    def penalty(self) -> Tensor | float:
        """λ ‖b(β, s)‖₁; gates shared by several weights are counted once."""
        return self.strength * self.switches.soft().sum() if self.strength else 0.0

    def project(self) -> Tensor:
        """The hard weight: exact zeros where gates are closed, times the constant factor of ``published``."""
        opened = self.over(self.switches.open()) & torch.ones_like(self.weight, dtype=torch.bool)
        return torch.where(opened, self.switches.scale * self.weight, 0.0)


def switches(problem: nn.Module) -> dict[str, Switches]:
    """The sets of gates in a lifted problem, each once, by the name of the first weight they govern."""
    found: dict[int, tuple[str, Switches]] = {}
    for name, part in problem.named_modules():
        if isinstance(part, Gate):
            found.setdefault(
                id(part.switches), (name.rpartition("nodes.")[2].replace("/", "."), part.switches)
            )
    return dict(found.values())


def spared(problem: Problem) -> Problem:
    """A copy of the problem in which no set of gates is closed altogether: the best one is kept."""
    problem = copy.deepcopy(problem)
    for name, held in switches(problem).items():
        if not bool(held.open().any()):
            warnings.warn(f"every channel of {name} was closed; the best one is kept.", stacklevel=3)
            with torch.no_grad():
                held.logit.view(-1)[held.logit.argmax()] = torch.finfo(held.logit.dtype).tiny
    return problem
