"""A target (zeros, parameters, MACs, bytes) as a fraction of what a mask governs."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Problem, Task
from torchlift.deploy.measuring import file_size
from torchlift.lifts import SoftMask
from torchlift.loss import call, evaluating
from torchlift.methods.sparsity.switches import Gate, Ranked, switches
from torchlift.targets import Target, solve_for_target


@dataclasses.dataclass(frozen=True)
class MaskTarget(Target):
    """Close gates worth ``sparsity`` of the total, an entry of a layer being worth its ``costs``.

    ``masked``: the weights that are governed.
    """

    sparsity: float
    masked: tuple[str, ...] = ()
    costs: Mapping[str, float] | None = None
    uses: Mapping[str, float] | None = None

    def achieved(self, task: Task) -> dict[str, float]:
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


def mask_target(task: Task, mask: SoftMask, example: Any, target: Target | None) -> MaskTarget | None:
    """A target as a sparsity of the mask; an error, with the range, where no mask can meet it."""
    if target is None:
        return None
    name, value = target.name, target.value
    if name == "sparsity":
        return MaskTarget(name, value, value)
    governed = {g: gate.weight.numel() for g, gate in gates(mask.lift(task)).items()}
    masked, total = sum(governed.values()), sum(p.numel() for p in task.parameters())
    if name == "parameters":
        target.check(total - masked, total, "this mask")
        return MaskTarget(name, value, below_one((total - value) / masked), tuple(governed))
    if name == "bytes":  # what is kept takes four bytes, a masked entry one bit
        fixed = 4 * (total - masked) + masked / 8
        target.check(fixed, fixed + 4 * masked, "this mask")
        return MaskTarget(name, value, below_one(1 - (value - fixed) / (4 * masked)), tuple(governed))
    return macs_target(task, tuple(governed), uses_per_weight(task.model, example), target)


def macs_target(task: Task, masked: tuple[str, ...], uses: Mapping[str, float], target: Target) -> MaskTarget:
    """Multiplications: an entry is worth as many as it does."""
    costs = {name: uses[own] for name in masked if (own := name.removeprefix("model.")) in uses}
    worth = sum(cost * task.get_parameter(name).numel() for name, cost in costs.items())
    whole = sum(cost * task.model.get_parameter(name).numel() for name, cost in uses.items())
    target.check(whole - worth, whole, "this mask")
    share = below_one((whole - target.value) / worth)
    return MaskTarget("macs", target.value, share, masked, {**costs, "*": 0.0}, uses)


def below_one(sparsity: float) -> float:
    """A sparsity that leaves something."""
    return min(sparsity, 1 - 1e-9)


def gates(lifted: Problem) -> dict[str, Gate]:
    """The gated weights of a lifted problem by their names in the task."""
    return {
        name.rpartition("nodes.")[2].replace("/", "."): module
        for name, module in lifted.named_modules()
        if isinstance(module, Gate)
    }


def meet_sparsity(lifted: Problem, mask: SoftMask, target: MaskTarget, steps: int = 12) -> None:
    """Move the sparsity of a fitted mask until what is delivered has what the target says, or comes nearest.

    What a file takes, or a model whose channels are cut, is seen only when it is there: every step of the
    search projects and measures.
    """
    rank = next(iter(switches(lifted).values())).rank
    assert isinstance(rank, Ranked)

    def project_at(sparsity: float) -> Task:
        rank.target = min(max(sparsity, 0.0), 1 - 1e-9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task = mask.project(lifted)
        assert isinstance(task, Task)
        return task

    def measure(sparsity: float) -> float:
        return target.achieved(project_at(sparsity))[target.name]

    solution = solve_for_target(measure, target.value, 0.0, 1.0, steps=steps)
    _ = project_at(solution.at)
    if target.missed_by(solution.achieved):
        warnings.warn(
            f"the target is {target}; the nearest that this mask can leave is {solution.achieved:g}.",
            stacklevel=3,
        )


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
    try:
        with evaluating(model), torch.no_grad():
            call(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    return uses
