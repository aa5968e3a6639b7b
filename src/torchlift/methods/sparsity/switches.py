"""Gates as parts of a lifted problem: logits, their annealing, and the weights behind them."""

import copy
import math
import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Node, Problem, Reparametrized, SteppedDial, Stored, refer
from torchlift.methods.sparsity import gates

GONE = -1e4
"""The logit of an entry that was cut before: no gate opens there."""


class Stairs(Dial):
    """β_e = start · (end / start)^(e / (E − 1)) in epoch e = 0, …, E − 1: the published schedule."""

    def __init__(self, start: float, end: float, steps: int) -> None:
        super().__init__(start, end)
        self.steps = steps

    def turn(self, t: float) -> None:
        """Set the value of the epoch that progress t lies in."""
        epoch = min(math.floor(t * self.steps + 1e-9), self.steps - 1)
        super().turn(epoch / max(self.steps - 1, 1))


class Ranked(SteppedDial):
    """τ(t): the logit below which the fraction g(t) of all weights lies, g rising to the target by t = ramp.

    g(t) = target · (1 − (1 − t/ramp)³), the ramp of Zhu and Gupta (2017). The logits of all layers compete. τ
    moves at a hundred instants of a fit, not at each step, and is saved with the problem.
    """

    def __init__(self, logits: list[nn.Parameter], costs: list[Tensor], target: float, ramp: float) -> None:
        super().__init__(0.0, 100, -1)
        self.target, self.ramp = target, ramp
        self.logits = logits  # a list: the logits stay parameters of their switches
        self.costs = torch.cat([tensor.flatten() for tensor in costs])
        self.turn(0.0)

    def move(self, t: float, before: int) -> None:
        """Set the threshold for progress t."""
        del before
        goal = self.target * (1 - (1 - min(1.0, t / self.ramp)) ** 3)
        self.value.fill_(float(self.threshold(goal)))

    def threshold(self, goal: float) -> Tensor:
        """The score below which the fraction ``goal`` lies."""
        with torch.no_grad():
            scores = torch.cat([tensor.flatten() for tensor in self.logits])
            return gates.quantile(scores, self.costs.to(scores.device), goal * float(self.costs.sum()))


class Switches(nn.Module):
    """Logits s and their gates; one set may govern several weights. With a target, s counts from τ."""

    gate: gates.GateShape
    rank: "Ranked | None"
    unliftable: ClassVar[tuple[str, ...]] = ("logit",)

    def __init__(
        self, logit: Tensor, beta: Dial, gate: gates.GateShape, *, inclusive: bool, scale: float
    ) -> None:
        super().__init__()
        self.logit = nn.Parameter(logit)
        self.beta, self.gate, self.inclusive, self.scale = beta, gate, inclusive, scale
        self.weights = 0
        """How many weights they govern."""
        refer(self, "rank", None)

    def level(self) -> Tensor:
        """s, or s − τ."""
        return self.logit if self.rank is None else self.logit - self.rank()

    def soft(self) -> Tensor:
        """scale · b(β, s)."""
        opened = gates.soft(self.gate, self.beta(), self.level())
        return opened if self.scale == 1.0 else self.scale * opened

    def open(self) -> Tensor:
        """The hard decision, s ≥ 0 or s > 0: this, not float zeros, counts what is left."""
        level = self.level()
        return level >= 0 if self.inclusive else level > 0


class Gate(Node):
    """w = v ⊙ b(β, s) while optimizing, v ⊙ 1{s ≥ 0} for good; penalty λ ‖b(β, s)‖₁."""

    switches: Switches

    def __init__(
        self,
        weight: Tensor,
        switches: Switches,
        grain: gates.Grain,
        strength: float,
        eps: float | None = None,
    ) -> None:
        super().__init__()
        self.options = {"logit": {"weight_decay": 0.0} | ({} if eps is None else {"eps": eps})}
        self.weight = nn.Parameter(weight.clone())
        if switches.weights == 0:
            self.switches = switches
        else:
            refer(self, "switches", switches)
        switches.weights += 1
        self.grain, self.strength = grain, strength
        self.shape = tuple(weight.shape)

    def hold(self, mask: Tensor) -> None:
        """Gates of entries that are gone already are closed for good, and count as closed."""
        if self.switches.weights > 1:
            return  # what is gone here may live in another weight that the gate governs
        alive = gates.tile_sums(mask.to(self.weight.dtype), self.grain) > 0
        with torch.no_grad():
            self.logit.masked_fill_(~alive.view_as(self.logit), GONE)

    @property
    def logit(self) -> nn.Parameter:
        """The logits s, one per tile of the weight."""
        return self.switches.logit

    def over(self, values: Tensor) -> Tensor:
        """Values of the logits' shape, spread so that they multiply the weight."""
        values = values.reshape(gates.tiles(self.shape, self.grain))
        return gates.spread_tiles(values, self.shape, self.grain)

    def forward(self) -> Tensor:
        """The soft weight."""
        return self.over(self.switches.soft()) * self.weight

    def penalty(self) -> Tensor | float:
        """λ ‖b(β, s)‖₁; gates shared by several weights are counted once."""
        return self.strength * self.switches.soft().sum() if self.strength else 0.0

    def project(self) -> Tensor:
        """The hard weight: exact zeros where gates are closed, times the constant factor of ``published``."""
        return torch.where(self.opened(), self.switches.scale * self.weight, 0.0)

    def opened(self) -> Tensor:
        """The hard mask, of the weight's shape."""
        return self.over(self.switches.open()) & torch.ones_like(self.weight, dtype=torch.bool)

    def stored(self) -> Stored:
        """The mask."""
        return Stored(kept=self.opened())


def gated_weights(problem: nn.Module) -> dict[str, Gate]:
    """The gated weights of a lifted problem by their names; not those of a lift underneath it."""
    lifted = problem.nodes if isinstance(problem, Reparametrized) else problem
    return {
        name.replace("/", "."): module for name, module in lifted.named_modules() if isinstance(module, Gate)
    }


def switches(problem: nn.Module) -> dict[str, Switches]:
    """The sets of gates in a lifted problem, each once, by the name of the first weight they govern."""
    by_identity: dict[int, tuple[str, Switches]] = {}
    for name, gate in gated_weights(problem).items():
        by_identity.setdefault(id(gate.switches), (name, gate.switches))
    return dict(by_identity.values())


def with_target_sparsity(problem: Problem, multiple: int = 1) -> Problem:
    """A copy of the problem whose closed gates are worth the target; of equal logits, small weights go.

    ``multiple``: of each set of gates a multiple of it stays open.
    """
    problem = copy.deepcopy(problem)
    by_name = switches(problem)
    every = list(by_name.values())
    rank = every[0].rank
    if not isinstance(rank, Ranked):
        return problem
    gate_of = {id(gate.switches): gate for gate in reversed(gated_weights(problem).values())}
    sizes = [gates.tile_sums(gate_of[id(one)].weight.detach().abs(), gate_of[id(one)].grain) for one in every]
    with torch.no_grad():
        scores = torch.cat([one.logit.flatten() for one in every])
        ties = torch.cat([size.flatten() for size in sizes])
        costs = rank.costs.to(scores.device)
        dropped = gates.lowest_scores(scores, ties, costs, rank.target * float(costs.sum()))
        rank.value.zero_()
        for (name, one), off in zip(by_name.items(), dropped.split(gate_counts(every)), strict=True):
            if bool(off.all()):
                warn_of_the_last(name)
            off = gates.spare_best(off.view_as(one.logit), one.logit)
            off = gates.rounded_drops(off, one.logit, multiple)
            one.logit.copy_(torch.where(off, -1.0, 1.0))
    return problem


def with_round_widths(problem: Problem, multiple: int) -> Problem:
    """A copy of the problem in which the open gates of each set are a multiple, the nearest there is."""
    problem = copy.deepcopy(problem)
    for switch in switches(problem).values():
        off = gates.rounded_drops(~switch.open(), switch.logit, multiple)
        with torch.no_grad():
            switch.logit.copy_(torch.where(off, -1.0, 1.0))
    return problem


def with_one_open(problem: Problem) -> Problem:
    """A copy of the problem in which no set of gates is closed altogether: the best one is kept."""
    problem = copy.deepcopy(problem)
    for name, switch in switches(problem).items():
        if not bool(switch.open().any()):
            warn_of_the_last(name)
            with torch.no_grad():
                switch.logit.view(-1)[switch.logit.argmax()] = torch.finfo(switch.logit.dtype).tiny
    return problem


def gate_counts(every: list[Switches]) -> list[int]:
    """How many gates each set has."""
    return [one.logit.numel() for one in every]


def warn_of_the_last(name: str) -> None:
    """A layer without a weight ends the network."""
    warnings.warn(f"every gate of {name} was closed; the best one is kept.", stacklevel=4)
