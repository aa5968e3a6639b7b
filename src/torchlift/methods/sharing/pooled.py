"""Let the layer behind a map read averages over neighboring positions: a fourth of its weights."""

import copy
import dataclasses
from typing import Any, cast

from torchlift.core import Fit, Task, matches
from torchlift.errors import SelectionError, TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.recipe import Recipe, Started
from torchlift.methods.sharing.pooling import MapReader, pool, readers, why_not_pooled
from torchlift.tree import like


@dataclasses.dataclass(frozen=True)
class Pooled(Recipe):
    """W[o, c, y, x] = U[o, c, ⌊y/size⌋, ⌊x/size⌋] / size²: project W onto this, then train U.

    For Linear layers of ``where`` that read a flattened map (channels × height × width; by ``nn.Flatten``,
    ``torch.flatten``, ``view`` or ``reshape``), such as the first one behind the convolutions of LeNet or
    VGG, where most of the weights are. Each is replaced by ``Unflatten, AvgPool2d(size), Flatten, Linear``
    with 1/size² of the weights: fewer to store and to run. Neighboring positions of a map say much the same,
    so that little is lost. Layers that cannot are passed over; where none can, that is an error.
    """

    where: str = "*"
    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 2:
            raise TorchliftError(
                f"size is the side of the blocks that are averaged, 2 or more; got {self.size}."
            )

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Project, train."""
        small = self.projected(task, fit)
        fit(small, name="pooled")
        return small

    def start(self, task: Task, fit: Fit) -> Started:
        """A part of the training; what is resumed is the smaller network."""
        small = self.projected(task, fit)
        return self.resume(Started(small, small), fit)

    def resume(self, started: Started, fit: Fit) -> Started:
        """Further with the smaller network, which has nothing left to project."""
        fit(started.problem, name="pooled")
        return Started(cast(Task, started.problem), started.problem)

    def projected(self, task: Task, fit: Fit) -> Task:
        """A copy of the task whose layers read averages."""
        chosen, reason = self.chosen(task, fit)
        if reason is not None:
            raise SelectionError(reason)
        small = copy.deepcopy(task)
        for reader in chosen:
            pool(small.model, reader, self.size)
        return small

    def chosen(self, task: Task, fit: Fit) -> tuple[list[MapReader], str | None]:
        """The layers to change; else why there are none."""
        x = inputs_and_target(next(iter(fit.batches())))[0]
        by_name = {reader.name: reader for reader in readers(task, first_rows(x, task))}
        picked = [reader for name, reader in by_name.items() if matches(name, self.where)]
        reasons = {reader.name: why_not_pooled(task, reader, self.size) for reader in picked}
        chosen = [reader for reader in picked if reasons[reader.name] is None]
        if chosen:
            return chosen, None
        if picked:
            why = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
            return [], f"Pooled can change no layer: {why}."
        have = f"there are {', '.join(by_name)}" if by_name else "the model has none"
        return [], f"Pooled: where={self.where!r} picks no Linear layer that reads a flattened map; {have}."

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether a layer can be changed, if there are data to see it."""
        return None if fit is None else self.chosen(task, fit)[1]


def first_rows(x: Any, task: Task) -> Any:
    """Two samples, where the model is."""
    return like(x[:2], next(iter(task.parameters())))
