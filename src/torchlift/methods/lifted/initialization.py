"""Pre-train lifted, then train the network as usual (Askari et al. 2018, section 7)."""

import dataclasses
import math

from torchlift.core import Fit, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.isgm import ISGM
from torchlift.methods.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class LiftedInit(Recipe):
    """min loss + Σ_l μ B_l(u_l, v_l) over weights and states first (ISGM), then min loss over weights.

    ``epochs`` passes over the data, at equal cost as many as ``share`` of the budget pays for; then the
    network as usual. It pays where the second phase has a tiny learning rate (1e-5, as in the source); beside
    Adam at a tuned rate it costs more and ends lower (``benchmarks/lifted_parity.py``). The model must be a
    chain that ``lifted.train`` reads.
    """

    epochs: float = 3
    mu: float = 3.0
    tau: float = 5.0
    penalty: str = "bregman"
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise TorchliftError(
                f"LiftedInit's share is a fraction of the budget in (0, 1), got {self.share}."
            )

    def first(self) -> ISGM:
        """The lift of the first phase."""
        return ISGM(self.tau, rounds=1, inner=8, schedule="linear", penalty=self.penalty, mu=self.mu)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Chains with a named loss, and no pruned weights: lifted training has no way to hold zeros."""
        return self.first().accepts(task, fit)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The task with weights from lifted training, then fitted."""
        length = {"epochs": self.epochs} if math.isinf(fit.left()) else {"share": self.share}
        lift = self.first()
        problem = fit.lift(lift, task)
        fit(problem, name="lifted", schedule="constant", keep="last", **length, **lift.settings)
        task = lift.project(problem)
        fit(task, name="network")
        return task
