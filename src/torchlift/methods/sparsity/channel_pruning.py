"""Channel pruning: train, cut the channels worth least, train the smaller network."""

import dataclasses

from torch import Tensor, nn

from torchlift.channels.prune import prune_channels
from torchlift.channels.scores import Criterion, Scope
from torchlift.core import Batch, Fit, Problem, Task
from torchlift.deploy.measuring import count_macs
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.recipe import Recipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruning(Recipe):
    """Train; cut the channels, units and heads worth least; train what is left, which is really smaller.

    Li et al. (2017) with ``criterion="magnitude"``, Molchanov et al. (2019) with ``"taylor"``, Liu et al.
    (2017, without its penalty) with ``"norm"``. ``ratio`` of each group of coupled channels goes; or what
    leaves ``parameters`` or ``macs`` (of one sample). ``share`` of the budget trains before the cut.
    ``exact=False`` lets layer norms forget the width they had, as Hugging Face's configurations need it.
    See :func:`torchlift.deploy.prune`.
    """

    ratio: float = 0.5
    parameters: float | None = None
    macs: float | None = None
    criterion: Criterion = "magnitude"
    scope: Scope = "local"
    skip: str | None = None
    round_to: int = 1
    exact: bool = True
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise TorchliftError(f"share is a fraction of the budget in (0, 1), got {self.share}.")
        if self.parameters is not None and self.macs is not None:
            raise TorchliftError("give one target, not two: parameters or macs.")

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether channels can be cut at all, tried on the weights as they are; none of frozen layers can."""
        frozen = [name for name, p in task.model.named_parameters() if not p.requires_grad]
        if frozen:
            return f"ChannelPruning would cut frozen weights ({', '.join(frozen[:3])}): unfreeze them."
        try:
            _ = None if fit is None else self.cut(task, next(iter(fit.batches())))
        except TorchliftError as reason:
            return str(reason)
        return None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Two fits with a cut between them."""
        fit(task, name="before", share=self.share)
        batch = next(iter(fit.batches()))
        small = self.cut(task, batch)

        def log(problem: Problem) -> dict[str, float]:
            del problem
            return {
                "parameters": float(sum(p.numel() for p in small.model.parameters())),
                "macs": float(count_macs(small.model, inputs_and_target(batch)[0])),
            }

        fit(small, name="finetune", share=1 - self.share, log=log)
        return small

    def cut(self, task: Task, batch: Batch) -> Task:
        """The task without the channels that are worth least on a batch."""

        def loss(model: nn.Module) -> Tensor:
            return Task(model, task.loss).objective(batch)

        small = prune_channels(
            task.model,
            inputs_and_target(batch)[0],
            self.ratio if self.parameters is None and self.macs is None else None,
            criterion=self.criterion,
            scope=self.scope,
            loss=loss,
            skip=self.skip,
            round_to=self.round_to,
            exact=self.exact,
            parameters=self.parameters,
            macs=self.macs,
        )
        return Task(small, task.loss)
