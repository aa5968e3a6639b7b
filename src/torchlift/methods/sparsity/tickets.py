"""Tickets: masks found in rounds, trained from early weights."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchlift.core import Fit, Problem, Task
from torchlift.errors import TorchliftError
from torchlift.methods.baselines.magnitude import remembered
from torchlift.methods.sparsity.accounts import sparsity_log
from torchlift.methods.sparsity.mask_options import Masking
from torchlift.methods.sparsity.pruned_weights import logger
from torchlift.methods.sparsity.soft_mask import Variant
from torchlift.methods.sparsity.switches import Switches, with_one_open
from torchlift.methods.sparsity.switches import switches as all_switches


def thesis_rule(s: Tensor, beta: float, s_init: float) -> Tensor:
    """s ← min(β·s, s_init) (Algorithm 2, line 3): what was closed stays closed for good."""
    return (beta * s).clamp(max=s_init)


def published_rule(s: Tensor, beta: float, s_init: float) -> Tensor:
    """s ← min(s, s_init): the published code resets β first, so what was closed by a little can return."""
    del beta
    return s.clamp(max=s_init)


@dataclasses.dataclass(frozen=True)
class TicketSearch(Masking):
    """Rounds of continuous sparsification; the mask of the last is applied to early weights, and trained.

    Thesis Algorithm 2. Weights and momentum go on from round to round; between rounds s is lowered by the
    ``between`` rule (of the ``variant`` unless given) and β is 1 again. ``rewind=k``: the ticket starts
    from the weights and norm statistics of the end of epoch k of round 1 (0: the initial ones).
    ``restart=True`` rewinds the weights before every round, as in §4.5.4. The budget is split over the rounds
    and the ticket's own training.
    """

    rounds: int = 5
    rewind: int = 2
    between: Variant | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.rewind < 0:
            raise TorchliftError(
                f"TicketSearch needs rounds ≥ 1, rewind ≥ 0; got {self.rounds}, {self.rewind}."
            )
        if self.between not in (None, "thesis", "published"):
            raise TorchliftError(f"between is 'thesis' or 'published', got {self.between!r}.")
        _ = self.soft_mask()

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The rounds, then the ticket."""
        share, fitted = 1 / (self.rounds + 1), None
        mask = self.soft_mask(**self.schedule(fit, share))
        lifted, log = mask.lift(task), sparsity_log(total=sum(p.numel() for p in task.parameters()))
        early: Mapping[str, Any] = copy.deepcopy(lifted.state_dict())
        for number in range(1, self.rounds + 1):
            if number > 1:
                self.turn(lifted, early)
            remember = (self.rewind,) if number == 1 and self.rewind else ()
            fitted = fit(lifted, name=f"round {number}", share=share, remember=remember, warm=fitted, log=log)
            early = remembered(fitted.remembered, self.rewind) if remember else early
        load_early_weights(lifted, early)
        ticket = mask.project(with_one_open(lifted))
        assert isinstance(ticket, Task)
        fit(ticket, name="ticket", share=share, log=logger(self.where, self.skip))
        return ticket

    def turn(self, lifted: Problem, early: Mapping[str, Any]) -> None:
        """What happens between rounds."""
        rule = thesis_rule if (self.between or self.variant) == "thesis" else published_rule
        with torch.no_grad():
            for switch in all_switches(lifted).values():
                switch.logit.copy_(rule(switch.logit, self.beta_final, self.s_init))
        if self.restart:
            load_early_weights(lifted, early)


def load_early_weights(lifted: Problem, early: Mapping[str, Any]) -> None:
    """Early weights and statistics under today's gates."""
    gates = {f"{name}." for name, module in lifted.named_modules() if isinstance(module, Switches)}
    today = lifted.state_dict()
    own = {key for key in today if any(key.startswith(prefix) for prefix in gates)}
    lifted.load_state_dict({key: today[key] if key in own else early[key] for key in today})
