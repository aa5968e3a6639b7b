"""Sequential continuous sparsification: the lowest gates go, round by round."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from torchlift.core import Fit, Problem, Task
from torchlift.lifts import SoftMask
from torchlift.methods.baselines.magnitude import remembered
from torchlift.methods.sparsity.accounts import sparsity_log
from torchlift.methods.sparsity.mask_options import Masking
from torchlift.methods.sparsity.pruned_weights import dropped, logger, prunable_weights, rewound, sparsity
from torchlift.methods.sparsity.switches import switches as all_switches
from torchlift.methods.sparsity.tickets import load_early_weights


@dataclasses.dataclass(frozen=True)
class SequentialSparsification(Masking):
    """Every round learns new gates and drops the fraction of the remaining weights with the lowest s.

    Sequential continuous sparsification (thesis §4.5.5): any sparsity in a single run. ``rewind=k`` trains
    the ticket from the end of epoch k of the first round; None trains on.
    """

    rounds: int = 5
    fraction: float = 0.2
    rewind: int | None = None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The rounds, then the ticket."""
        early: Mapping[str, Any] = copy.deepcopy(task.state_dict())
        share = 1 / (self.rounds + 1)
        mask = self.soft_mask(**self.schedule(fit, share))
        for number in range(1, self.rounds + 1):
            lifted = mask.lift(task)
            remember = (self.rewind,) if number == 1 and self.rewind else ()
            fitted = fit(lifted, name=f"round {number}", share=share, remember=remember, log=sparsity_log())
            if remember:
                early = early_weights(mask, lifted, remembered(fitted.remembered, self.rewind))
            scores = {name: switch.logit.detach().clone() for name, switch in all_switches(lifted).items()}
            open_ = with_open_gates(mask, lifted)
            goal = 1 - (1 - self.fraction) * (1 - sparsity(prunable_weights(open_, self.where, self.skip)))
            task = dropped(open_, scores, goal)
        task = task if self.rewind is None else rewound(task, early)
        target = 1 - (1 - self.fraction) ** self.rounds
        fit(task, name="ticket", share=share, log=logger(self.where, self.skip, sparsity=target))
        return task


def with_open_gates(mask: SoftMask, lifted: Problem) -> Task:
    """The task with every gate open: dropping is by rank, not by sign."""
    lifted = copy.deepcopy(lifted)
    with torch.no_grad():
        for switch in all_switches(lifted).values():
            switch.logit.fill_(1.0)
    plain = mask.project(lifted)
    assert isinstance(plain, Task)
    return plain


def early_weights(mask: SoftMask, lifted: Problem, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the plain task in a lifted problem's early state."""
    copied = copy.deepcopy(lifted)
    load_early_weights(copied, state)
    return copy.deepcopy(with_open_gates(mask, copied).state_dict())
