"""Steering a precision to its target: bits per weight, or bytes of the packed file."""

import copy
import math
import warnings
from typing import cast

import torch

from torchlift.core import Lift, Problem, SteppedDial, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.lifts import Precision
from torchlift.methods.inside import delivered
from torchlift.methods.precision.grids import allocate
from torchlift.methods.precision.grids import bits as bits_of
from torchlift.methods.precision.keep_grid import KeepGrid, OnGrid
from torchlift.methods.precision.precision import Noisy
from torchlift.targets import Target, solve_for_target

MOST_TRIED = 32
"""Tensors that may get one more bit."""


class Steered(SteppedDial):
    """λ(t): raised while the average precision is above its course, lowered while it is below.

    The course falls from the start to the goal in a straight line over three quarters of a fit; at a hundred
    instants λ ← λ · e^((bits − course) / living), by a half at most: slower than precisions follow, or λ
    would run away from the loss and all precisions fall alike. ``living`` is the part of the weights that
    are not zero, for only they have bits. λ is saved with the problem.
    """

    def __init__(self, nodes: list[Noisy], strength: float, goal: float) -> None:
        super().__init__(strength, 100)
        self.nodes, self.goal = [nodes], goal  # a list in a list: the nodes stay where they are
        self.first, self.living = allocated_bits(nodes), nonzero_fraction(nodes)

    def move(self, t: float, before: int) -> None:
        """Correct λ."""
        del before
        course = self.goal + (self.first - self.goal) * (1 - min(1.0, t / 0.75))
        self.value.mul_(min(1.5, max(0.5, math.exp((allocated_bits(self.nodes[0]) - course) / self.living))))


def noisy(problem: Problem) -> list[Noisy]:
    """The weights of a lifted problem."""
    return [node for node in problem.modules() if isinstance(node, Noisy)]


def allocated_bits(nodes: list[Noisy]) -> float:
    """Bits per weight as a projection would allocate them now."""
    total = sum(node.weight.numel() for node in nodes)
    return sum(float(node.precision().sum(dtype=torch.float64)) for node in nodes) / total


def nonzero_fraction(nodes: list[Noisy]) -> float:
    """The part of the weights that are not zero."""
    total = sum(node.weight.numel() for node in nodes)
    return max(1, sum(int(node.weight.count_nonzero()) for node in nodes)) / total


def steer(problem: Problem, strength: float, goal: float) -> None:
    """Let one price rule all weights of the problem, and follow the goal."""
    nodes = noisy(problem)
    dial = Steered(nodes, strength or 1e-7, goal)
    nodes[0].add_module("steered", dial)
    for node in nodes:
        node.price = [dial]


def least_bits(nodes: list[Noisy], zero: bool) -> float:
    """The average at one bit each, less what is zero: no shift of precisions gives fewer."""
    ones = [torch.ones_like(node.weight, dtype=torch.int16) for node in nodes]
    bits = [
        allocate(n.weight.detach() / n.scale, one) if zero else one
        for n, one in zip(nodes, ones, strict=True)
    ]
    return sum(float(p.sum(dtype=torch.float64)) for p in bits) / sum(p.numel() for p in bits)


def fixed_bytes(problem: Problem, lift: Precision) -> int:
    """The file with every chosen weight at zero: what no precision can save."""
    blank = copy.deepcopy(problem)
    with torch.no_grad():
        for node in noisy(blank):
            node.weight.zero_()
    return packed_bytes(blank, lift)


def packed_bytes(problem: Problem, lift: Lift) -> int:
    """Bytes of the packed file if projected now."""
    return file_size(delivered(cast(Task, lift.project(problem))).model)


def reachable_bits(problem: Problem, lift: Precision, target: Target) -> float:
    """The average precision to steer for; an error where the target is out of reach, with what is not."""
    low = least_bits(noisy(problem), lift.zero)
    if target.name == "bytes":
        floor = fixed_bytes(problem, lift)
        if target.value <= floor:
            raise TorchliftError(
                f"{target} is below the file's fixed part: {floor} bytes hold no quantized weight; "
                "allow more, widen where=, or shrink the model first."
            )
        return max(low, bits_of_bytes(problem, lift, target))
    if target.value < low and not zeroes(lift):
        how = "with zero=True" if lift.levels is None else "without levels="
        raise TorchliftError(
            f"{target} is not possible: one bit where a weight is not zero is {low:.2f} on average; "
            f"allow more, or ask {how}, which zeroes the smallest weights."
        )
    return max(low, target.value)


def zeroes(lift: Precision) -> bool:
    """Whether single weights may become zero, as many as a target needs."""
    return lift.zero and lift.levels is None


def bits_of_bytes(problem: Problem, lift: Precision, target: Target) -> float:
    """The average precision at which these weights, all precisions shifted alike, fill the file."""
    trial = copy.deepcopy(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        meet_bits(trial, lift, target)
    return allocated_bits(noisy(trial))


def meet_bits(problem: Problem, lift: Precision, target: Target) -> None:
    """Shift all precisions by one number of bits until the target is met, never exceeded.

    A target that one bit each exceeds is met by zeros: the weights that are smallest in their tensor's scale.
    Where a whole tensor has one precision that leaves gaps: tensors then get one more bit, those first that
    were nearest to it, as long as the target allows it. Shifts that give the same whole bits are measured
    once: a file takes its time to write.
    """
    nodes = noisy(problem)
    measured: dict[tuple[bytes, ...], float] = {}

    def achieved() -> float:
        whole = tuple(node.precision().cpu().numpy().tobytes() for node in nodes)
        if whole not in measured:
            measured[whole] = (
                allocated_bits(nodes) if target.name == "bits" else float(packed_bytes(problem, lift))
            )
        return measured[whole]

    def measure_zeros(dead_zone: float) -> float:
        for node in nodes:
            node.dead_zone = dead_zone
        return achieved()

    def measure(shift: float) -> float:
        for node in nodes:
            node.shift = shift
        return achieved()

    steps = 30 if target.name == "bits" else 18
    solution = solve_for_target(measure, target.value, -64.0, 16.0, steps=steps, at_most=True)
    _ = measure(solution.at)
    if solution.achieved > target.value and zeroes(lift):
        largest = max(float((node.weight.detach() / node.scale).abs().max()) for node in nodes)
        solution = solve_for_target(measure_zeros, target.value, 0.0, largest, steps=steps, at_most=True)
        _ = measure_zeros(solution.at)
    if solution.achieved > target.value and target.missed_by(solution.achieved):
        warnings.warn(
            f"the target is {target}; {solution.achieved:.4g} is the least these weights have.", stacklevel=3
        )
        return
    if any(node.dead_zone for node in nodes):
        return
    for node in sorted(filter(lambda node: node.logit.numel() == 1, nodes), key=missing)[:MOST_TRIED]:
        node.shift = solution.at + missing(node)
        if achieved() > target.value:
            node.shift = solution.at


def missing(node: Noisy) -> float:
    """What a tensor's precision lacks to its next whole bit."""
    p = float(bits_of(node.logit.detach())) + node.shift
    return max(1.0, float(node.whole_bits())) + 1 - p


def trim(problem: Problem, target: Target) -> None:
    """Zero the smallest weights of all grids until the file is not above its target: fine-tuning moves it."""
    nodes = [node for node in problem.modules() if isinstance(node, OnGrid)]
    tiny = torch.finfo(torch.float32).tiny
    sizes = [node.weight.detach().abs() / node.top().clamp(min=tiny) for node in nodes]
    grids = [(node.unit.clone(), node.last.clone()) for node in nodes]

    def measure(dead_zone: float) -> float:
        for node, size_of, (unit, last) in zip(nodes, sizes, grids, strict=True):
            alive = size_of >= dead_zone
            node.unit.copy_(unit * alive)
            node.last.copy_(last * alive)
        return float(file_size(delivered(KeepGrid().project(problem)).model))

    if nodes and measure(0.0) > target.value:
        _ = measure(solve_for_target(measure, target.value, 0.0, 1.0, steps=12, at_most=True).at)
