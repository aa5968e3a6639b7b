"""Pre-train lifted, then train the network as usual (Askari et al. 2018, section 7)."""

import copy
import dataclasses
import logging
import math
from functools import partial

import torch
from torch import Tensor

from torchlift import lifted
from torchlift.core import Fit, Problem, Task, zero_masks
from torchlift.errors import BudgetError, SelectionError, TorchliftError
from torchlift.flops import count_flops
from torchlift.loss import Supervised, split
from torchlift.recipes.tools.recipe import Recipe

Data = tuple[Tensor, Tensor]

LOG = logging.getLogger("torchlift")

FIRST, SAFETY = 8, 4.0
"""Samples of the first batch, whose price is not yet known; how much dearer a larger one may be."""


@dataclasses.dataclass(frozen=True)
class LiftedInit(Recipe):
    """min loss + Σ_l μ B_l(u_l, v_l) over weights and states first (ISGM), then min loss over weights.

    The pre-training is a durable step of the run, ``epochs`` passes over the data or as many as ``share`` of
    the budget pays for, whichever is less; what part of a pass is left goes to the first samples. The model
    must be a chain that ``torchlift.lifted.train`` reads, the loss one of the named ones.
    """

    epochs: int = 3
    mu: float = 3.0
    tau: float = 5.0
    penalty: str = "bregman"
    batch_size: int = 200
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise TorchliftError(f"LiftedInit's share is a part of the budget in (0, 1), got {self.share}.")

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Chains with a named loss, and no pruned weights: lifted training has no way to hold zeros."""
        del fit
        pruned = next(iter(zero_masks(task)), None)
        if pruned is not None:
            return f"LiftedInit would fill the zeros of {task.label(pruned)}, which is pruned."
        if not isinstance(task.loss, Supervised) or task.loss.module is not None:
            return f"LiftedInit needs loss='cross_entropy', 'mse' or 'bce', got {task.loss!r}."
        try:
            lifted.read(task.model)
        except ValueError as error:
            return f"LiftedInit cannot lift this model. {error}"
        return None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The task with weights from lifted training, then fitted."""
        reason = self.accepts(task)
        if reason is not None:
            raise SelectionError(reason)
        pairs = [split(batch) for batch in fit.batches()]
        data = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
        fit.once("lifted", partial(self.pretrain, data=data, allowance=self.share * fit.left()), task)
        fit(task, name="network")
        return task

    def pretrain(self, problem: Problem, data: Data, allowance: float) -> None:
        """Whole passes; within a finite allowance of FLOPs, as many samples as it pays for."""
        if math.isinf(allowance):
            self.train(problem, data, self.epochs)
            return
        price, done = self.price(problem, data), 0
        spent = 2 * price
        if FIRST * price > allowance:
            raise BudgetError(f"LiftedInit's share does not pay for {FIRST} samples: raise the budget.")
        size, total = min(FIRST, len(data[0])), self.epochs * len(data[0])
        while size > 1 and done < total:
            rows = torch.arange(done, done + size) % len(data[0])
            flops = count_flops(lambda rows=rows: self.train(problem, (data[0][rows], data[1][rows]), 1))
            spent, price, done = spent + flops, max(price, flops / size), done + size
            size = min(self.batch_size, total - done, int((allowance - spent) / (SAFETY * price)))
        if done < total:
            LOG.info("LiftedInit: its share pays for %d of %d samples.", done, total)

    def price(self, problem: Problem, data: Data) -> float:
        """FLOPs of a sample, by a trial on a copy, which is on the bill too."""
        few, trial = min(2, len(data[0])), copy.deepcopy(problem)
        with torch.random.fork_rng(devices=[]):
            return count_flops(lambda: self.train(trial, (data[0][:few], data[1][:few]), 1)) / few

    def train(self, problem: Problem, data: Data, epochs: int) -> None:
        """Implicit stochastic gradients on weights and states."""
        body = problem.body()
        assert isinstance(problem.loss, Supervised) and body is not None  # noqa: PT018  (types)
        lifted.train(
            body,
            data,
            method=lifted.ISGM(self.tau, rounds=1, inner=8, schedule="linear", batch_size=self.batch_size),
            penalty=self.penalty,
            mu=self.mu,
            loss=problem.loss.name,
            epochs=epochs,
            progress=False,
        )
