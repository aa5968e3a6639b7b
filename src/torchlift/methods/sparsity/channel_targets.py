"""Targets of channel masks, counted on the model that shrinking leaves."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.groups import Plan
from torchlift.channels.shrink import shrink
from torchlift.core import Problem, Task
from torchlift.deploy.measuring import count_macs, file_size, median_latency
from torchlift.lifts import SoftMask
from torchlift.methods.sparsity.switches import Ranked, switches
from torchlift.methods.sparsity.targets import Target, reach


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShrunkTarget(Target):
    """What is asked of the shrunken model; ``plan`` knows its channels, ``seen`` what was measured."""

    plan: Plan
    example: Any
    seen: dict[bytes, dict[str, float]] = dataclasses.field(default_factory=dict[bytes, dict[str, float]])

    def reached(self, task: Task) -> dict[str, float]:
        """For the history: the shrunken model's parameters and MACs, and what was asked for."""
        closed = self.plan.closed(task.model)
        key = b"".join(gone.numpy().tobytes() for gone in closed.values())
        if key not in self.seen:
            self.seen[key] = self.measured(task.model)
        return self.seen[key]

    def measured(self, model: nn.Module) -> dict[str, float]:
        """Numbers of a model once it is shrunk."""
        small = shrink(model, self.example).eval()
        found = {
            "parameters": float(sum(p.numel() for p in small.parameters())),
            "macs": float(count_macs(small, self.example)),
        }
        if self.name == "bytes":
            found["bytes"] = float(file_size(small))
        if self.name == "latency":
            found["latency"] = 1e3 * median_latency(small, self.example, 21, 3)
        return found


def shrunk_target(task: Task, plan: Plan, example: Any, name: str, asked: float) -> ShrunkTarget:
    """A target that closing the same part of every group would meet; refused where no cut can."""

    def left(ratio: float) -> float:
        closed = {g: first(c.channels, ratio) for g, c in plan.couplings.items()}
        if name in ("parameters", "macs"):
            return plan.left("parameters" if name == "parameters" else "macs", closed)
        most = plan.left("parameters" if name == "bytes" else "macs", {})
        part = plan.left("parameters" if name == "bytes" else "macs", closed) / most
        return part * whole

    whole = 1.0
    if name in ("bytes", "latency"):
        measured = ShrunkTarget(0.0, name, asked, plan=plan, example=example).measured(task.model)
        whole = measured[name]
    least, most = left(1.0), left(0.0)
    inside = least <= asked <= most
    _ = reach(0.5 if inside else 2.0, f"{name}={asked:g}", least, most)
    ratio = bisected(left, asked)
    return ShrunkTarget(min(ratio, 0.999), name, asked, plan=plan, example=example)


def first(channels: int, ratio: float) -> Tensor:
    """Boolean: the first part of the channels, one at least left out."""
    return torch.arange(channels) < min(round(ratio * channels), channels - 1)


def bisected(left: Callable[[float], float], asked: float, steps: int = 30) -> float:
    """The ratio at which a falling function comes nearest to what is asked."""
    low, high = 0.0, 1.0
    best = min((0.0, 1.0), key=lambda r: abs(left(r) - asked))
    nearest = abs(left(best) - asked)
    for _ in range(steps):
        middle = 0.5 * (low + high)
        found = left(middle)
        if abs(found - asked) < nearest:
            best, nearest = middle, abs(found - asked)
        low, high = (middle, high) if found > asked else (low, middle)
    return best


def settle(lifted: Problem, mask: SoftMask, goal: ShrunkTarget) -> None:
    """Move the target of a fitted mask until the shrunken model has what was asked, or comes nearest."""
    rank = next(iter(switches(lifted).values())).rank
    assert isinstance(rank, Ranked)

    def task_at(target: float) -> Task:
        rank.target = min(max(target, 0.0), 1 - 1e-9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = mask.project(lifted)
        assert isinstance(found, Task)
        return found

    counted = goal.name in ("parameters", "macs")

    def left(target: float) -> float:
        task = task_at(target)
        if not counted:
            return goal.reached(task)[goal.name]
        return goal.plan.left(
            "parameters" if goal.name == "parameters" else "macs", goal.plan.closed(task.model)
        )

    best = bisected(left, goal.asked, 30 if counted else 10)
    got = goal.reached(task_at(best))[goal.name]
    if counted and abs(got - goal.asked) > 0.02 * goal.asked:  # some closed channels stay: count by shrinking
        best = bisected(lambda t: goal.reached(task_at(t))[goal.name], goal.asked, 10)
        got = goal.reached(task_at(best))[goal.name]
    _ = task_at(best)
    if abs(got - goal.asked) > 0.02 * goal.asked:
        warnings.warn(
            f"{goal.name}={goal.asked:g} was asked; the nearest that whole channels allow is {got:g}.",
            stacklevel=3,
        )


def groups_of(plan: Plan, keep: Callable[[Mapping[str, Any]], bool]) -> dict[str, dict[str, Any]]:
    """The groups of a plan by the names that a task gives its weights; those that ``keep`` picks."""
    return {
        name: {f"model.{p}": dim for p, dim in members.items()}
        for name, members in plan.groups.items()
        if keep(members)
    }
