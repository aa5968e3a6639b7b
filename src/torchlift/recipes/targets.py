"""What a user asks for (zeros, parameters, MACs, bytes) as a fraction of what a mask governs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Task, TorchliftError
from torchlift.core.loss import call
from torchlift.lifts import SoftMask
from torchlift.lifts.switches import Gate


@dataclasses.dataclass(frozen=True)
class Target:
    """Close gates worth ``sparsity`` of the total, an entry of a layer being worth its ``costs``."""

    sparsity: float
    costs: Mapping[str, float] | None = None


def target(
    task: Task, mask: SoftMask, example: Any, *, sparsity: float | None, parameters: int | None,
    macs: float | None, bytes: int | None,
) -> Target | None:  # fmt: skip
    """The target, or None; what no mask of these weights can reach is refused, with the range that can."""
    if sparsity is not None:
        return Target(sparsity)
    masked = sum(part.weight.numel() for part in mask.lift(task).modules() if isinstance(part, Gate))
    total = sum(p.numel() for p in task.parameters())
    if parameters is not None:
        return Target(reach((total - parameters) / masked, f"parameters={parameters}", total - masked, total))
    if bytes is not None:  # what is kept takes four bytes, a masked entry one bit
        fixed = 4 * (total - masked) + masked / 8
        goal = 1 - (bytes - fixed) / (4 * masked)
        return Target(reach(goal, f"bytes={bytes}", fixed, fixed + 4 * masked))
    if macs is not None:
        uses = uses_per_weight(task.model, example)
        names = [name for name in mask.eligible(task) if name.removeprefix("model.") in uses]
        costs = {name: uses[name.removeprefix("model.")] for name in names}
        worth = sum(uses[n.removeprefix("model.")] * task.get_parameter(n).numel() for n in names)
        whole = sum(uses[n] * task.model.get_parameter(n).numel() for n in uses)
        return Target(
            reach((whole - macs) / worth, f"macs={macs:g}", whole - worth, whole), {**costs, "*": 0.0}
        )
    return None


def reach(fraction: float, asked: str, least: float, most: float) -> float:
    """The fraction, if it is one."""
    if not 0 <= fraction < 1:
        raise TorchliftError(f"{asked} is out of reach of this mask: it can leave {least:.0f} to {most:.0f}.")
    return fraction


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
