"""What a user asks for (zeros, parameters, MACs, bytes) as a fraction of what a mask governs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Problem, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.lifts import SoftMask
from torchlift.loss import call
from torchlift.methods.sparsity.switches import Gate, Ranked, switches


@dataclasses.dataclass(frozen=True)
class Target:
    """Close gates worth ``sparsity`` of the total, an entry of a layer being worth its ``costs``.

    ``name`` and ``asked`` are the user's words; ``masked`` the weights that are governed.
    """

    sparsity: float
    name: str
    asked: float
    masked: tuple[str, ...] = ()
    costs: Mapping[str, float] | None = None
    uses: Mapping[str, float] | None = None

    def wanted(self) -> dict[str, float]:
        """For the history: what was asked for."""
        return {f"{self.name}_asked": self.asked}

    def reached(self, task: Task) -> dict[str, float]:
        """For the history: what the task has of it. (Zeros are counted by whoever logs the sparsity.)"""
        if self.name == "bytes":
            return {"bytes": float(file_size(task.model))}
        if self.name == "parameters":
            total = sum(p.numel() for p in task.parameters())
            return {"parameters": float(total - sum(zeros(task.get_parameter(n)) for n in self.masked))}
        if self.uses is not None:
            model = task.model
            left = {n: model.get_parameter(n).numel() - zeros(model.get_parameter(n)) for n in self.uses}
            return {"macs": sum(self.uses[n] * left[n] for n in self.uses)}
        return {}


def zeros(weight: Tensor) -> int:
    """How many entries are exactly zero."""
    return int((weight == 0).sum())


def target(task: Task, mask: SoftMask, example: Any, aims: Mapping[str, float]) -> Target | None:
    """The one target among ``aims``, or None; what no mask can reach is refused, with the range that can."""
    if not aims:
        return None
    ((name, asked),) = aims.items()
    if name == "sparsity":
        return Target(asked, name, asked)
    governed = {g: part.weight.numel() for g, part in gates(mask.lift(task)).items()}
    masked, total = sum(governed.values()), sum(p.numel() for p in task.parameters())
    if name == "parameters":
        part = reach((total - asked) / masked, f"parameters={asked:g}", total - masked, total)
        return Target(part, name, asked, tuple(governed))
    if name == "bytes":  # what is kept takes four bytes, a masked entry one bit
        fixed = 4 * (total - masked) + masked / 8
        part = reach(1 - (asked - fixed) / (4 * masked), f"bytes={asked:g}", fixed, fixed + 4 * masked)
        return Target(part, name, asked, tuple(governed))
    return macs_target(task, tuple(governed), uses_per_weight(task.model, example), asked)


def macs_target(task: Task, masked: tuple[str, ...], uses: Mapping[str, float], asked: float) -> Target:
    """Multiplications: an entry is worth as many as it does."""
    costs = {name: uses[own] for name in masked if (own := name.removeprefix("model.")) in uses}
    worth = sum(cost * task.get_parameter(name).numel() for name, cost in costs.items())
    whole = sum(cost * task.model.get_parameter(name).numel() for name, cost in uses.items())
    part = reach((whole - asked) / worth, f"macs={asked:g}", whole - worth, whole)
    return Target(part, "macs", asked, masked, {**costs, "*": 0.0}, uses)


def gates(lifted: Problem) -> dict[str, Gate]:
    """The gated weights of a lifted problem by their names in the task."""
    return {
        name.rpartition("nodes.")[2].replace("/", "."): part
        for name, part in lifted.named_modules()
        if isinstance(part, Gate)
    }


def reach(fraction: float, asked: str, least: float, most: float) -> float:
    """The fraction, if it is one."""
    if not 0 <= fraction < 1:
        raise TorchliftError(f"{asked} is out of reach of this mask: it can leave {least:.0f} to {most:.0f}.")
    return fraction


def weigh(lifted: Problem, mask: SoftMask, asked: float) -> None:
    """Move the target of a fitted mask until the packed file has the asked bytes, by Newton's rule.

    A kept weight takes about four bytes, less what compression saves: that is seen only in the file.
    """
    rank = next(iter(switches(lifted).values())).rank
    assert isinstance(rank, Ranked)
    masked = sum(part.weight.numel() for part in gates(lifted).values())
    for _ in range(6):
        found = mask.project(lifted)
        assert isinstance(found, Task)
        excess = file_size(found.model) - asked
        rank.target = min(max(rank.target + excess / (4 * masked), 0.0), 1 - 1 / masked)


def uses_per_weight(model: nn.Module, example: Any) -> dict[str, float]:
    """How many multiplications each entry of a layer's weight does for one sample."""
    uses: dict[str, float] = {}

    def note(name: str) -> Any:
        def hook(layer: nn.Module, _given: Any, result: Tensor) -> None:
            channels = 1 if not isinstance(layer, nn.Linear) else -1
            uses[name] = uses.get(name, 0.0) + result.numel() / result.shape[channels] / len(result)

        return hook

    layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [
        m.register_forward_hook(note(f"{n}.weight"))
        for n, m in model.named_modules()
        if isinstance(m, layers)
    ]
    training = model.training
    try:
        with torch.no_grad():
            call(model.eval(), example)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return uses
