"""Pre-train lifted, then train the network as usual (Askari et al. 2018, section 7)."""

import dataclasses

import torch

from torchlift import lifted
from torchlift.core import Fit, Problem, Task
from torchlift.core.loss import Supervised, split
from torchlift.errors import SelectionError
from torchlift.recipes.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class LiftedInit(Recipe):
    """min loss + Σ_l μ B_l(u_l, v_l) over weights and states first (ISGM), then min loss over weights.

    The pre-training is a durable step of the run and its cost is counted. The model must be a chain that
    ``torchlift.lifted.train`` reads, the loss one of the named ones.
    """

    epochs: int = 3
    mu: float = 3.0
    tau: float = 5.0
    penalty: str = "bregman"
    batch_size: int = 200

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The task with weights from lifted training, then fitted."""
        loss = task.loss
        if not isinstance(loss, Supervised):
            raise SelectionError(f"LiftedInit needs loss='cross_entropy', 'mse' or 'bce', got {loss!r}.")
        try:
            lifted.read(task.model)
        except ValueError as error:
            raise SelectionError(f"LiftedInit cannot lift this model. {error}") from error

        def pretrain(problem: Problem) -> None:
            pairs = [split(batch) for batch in fit.batches()]
            data = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
            body = problem.body()
            assert body is not None
            lifted.train(
                body,
                data,
                method=lifted.ISGM(
                    self.tau, rounds=1, inner=8, schedule="linear", batch_size=self.batch_size
                ),
                penalty=self.penalty,
                mu=self.mu,
                loss=loss.name,
                epochs=self.epochs,
                progress=False,
            )

        fit.once("lifted", pretrain, task)
        fit(task, name="network")
        return task
