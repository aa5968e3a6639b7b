"""Iterative stochastic sparsification, the stochastic rival of continuous sparsification."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchlift.core import Fit, Lift, Problem, Task
from torchlift.methods.baselines.magnitude import remembered
from torchlift.methods.baselines.stochastic_mask import BernoulliGate, StochasticMask
from torchlift.methods.recipe import Recipe
from torchlift.methods.sparsity.pruned_weights import logger, rewound


@dataclasses.dataclass(frozen=True)
class IterativeStochastic(Recipe):
    """ISS: rounds with Bernoulli gates; gates whose s fell below s_init are closed for good; then the ticket.

    Thesis Algorithm 4. ``StochasticMask(frozen=True)`` alone is the supermask search of Zhou et al. (2019).
    """

    rounds: int = 5
    rewind: int = 0
    where: str = "*weight"
    s_init: float = 1.0
    strength: float = 1e-8

    def lifts(self) -> Iterable[Lift]:
        """The mask."""
        return (StochasticMask(self.where, self.s_init, self.strength),)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The rounds, then the ticket."""
        mask = StochasticMask(self.where, self.s_init, self.strength)
        lifted = mask.lift(task)
        early: Mapping[str, Any] = copy.deepcopy(task.state_dict())
        share = 1 / (self.rounds + 1)
        for number in range(1, self.rounds + 1):
            gates = [module for module in lifted.modules() if isinstance(module, BernoulliGate)]
            if number > 1:
                with torch.no_grad():
                    for gate in gates:
                        gate.logit.masked_fill_(gate.logit < self.s_init, -torch.inf)
            remember = (self.rewind,) if number == 1 and self.rewind else ()
            fitted = fit(lifted, name=f"round {number}", share=share, remember=remember, log=expected)
            if remember:
                kept = copy.deepcopy(lifted)
                kept.load_state_dict(remembered(fitted.remembered, self.rewind))
                for gate in (module for module in kept.modules() if isinstance(module, BernoulliGate)):
                    gate.logit.data.fill_(torch.inf)
                early = copy.deepcopy(mask.project(kept).state_dict())
        ticket = mask.project(lifted)
        assert isinstance(ticket, Task)
        ticket = rewound(ticket, early)
        fit(ticket, name="ticket", share=share, log=logger(self.where, None))
        return ticket


def expected(problem: Problem) -> dict[str, float]:
    """For the history: the sparsity to be expected of a draw, 1 − mean σ(s)."""
    chances = [
        torch.sigmoid(module.logit.detach()).flatten()
        for module in problem.modules()
        if isinstance(module, BernoulliGate)
    ]
    return {"sparsity": 1 - float(torch.cat(chances).mean())}
