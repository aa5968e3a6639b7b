"""Targets of channel masks, counted on the model that shrinking leaves."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.groups import Plan
from torchlift.channels.shrink import shrink
from torchlift.core import Task
from torchlift.deploy.measuring import count_macs, file_size, median_latency
from torchlift.methods.sparsity.targets import MaskTarget
from torchlift.targets import Target, solve_for_target


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShrunkTarget(MaskTarget):
    """A target of the shrunken model; ``plan`` knows its channels, ``seen`` what was measured."""

    plan: Plan
    example: Any
    seen: dict[bytes, dict[str, float]] = dataclasses.field(default_factory=dict[bytes, dict[str, float]])

    def achieved(self, task: Task) -> dict[str, float]:
        """For the history: the shrunken model's parameters and MACs, and what the target names."""
        closed = self.plan.closed(task.model)
        key = b"".join(gone.numpy().tobytes() for gone in closed.values())
        if key not in self.seen:
            self.seen[key] = self.measured(task.model)
        return self.seen[key]

    def measured(self, model: nn.Module) -> dict[str, float]:
        """Numbers of a model once it is shrunk."""
        small = shrink(model, self.example).eval()
        measures = {
            "parameters": float(sum(p.numel() for p in small.parameters())),
            "macs": float(count_macs(small, self.example)),
        }
        if self.name == "bytes":
            measures["bytes"] = float(file_size(small))
        if self.name == "latency":
            measures["latency"] = 1e3 * median_latency(small, self.example, 21, 3)
        return measures


def shrunk_target(task: Task, plan: Plan, example: Any, target: Target) -> ShrunkTarget:
    """A target that closing the same part of every group would meet; an error where no cut can."""
    counted = "parameters" if target.name in ("parameters", "bytes") else "macs"
    whole = ShrunkTarget(target.name, target.value, 0.0, plan=plan, example=example)
    scale = 1.0
    if target.name in ("bytes", "latency"):
        scale = whole.measured(task.model)[target.name] / plan.left(counted, {})

    def left(ratio: float) -> float:
        return scale * plan.left(
            counted, {g: first_channels(c.channels, ratio) for g, c in plan.couplings.items()}
        )

    target.check(left(1.0), left(0.0), "this mask")
    ratio = solve_for_target(left, target.value, 0.0, 1.0).at
    return dataclasses.replace(whole, sparsity=min(ratio, 0.999))


def first_channels(channels: int, ratio: float) -> Tensor:
    """Boolean: the first part of the channels, one at least left out."""
    return torch.arange(channels) < min(round(ratio * channels), channels - 1)


def groups_of(plan: Plan, keep: Callable[[Mapping[str, Any]], bool]) -> dict[str, dict[str, Any]]:
    """The groups of a plan by the names that a task gives its weights; those that ``keep`` picks."""
    return {
        name: {f"model.{p}": dim for p, dim in members.items()}
        for name, members in plan.groups.items()
        if keep(members)
    }
