"""Train a deep network, take out the layers that do least, train what is left."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlift.analyze.alignment import cka
from torchlift.analyze.tracking import Depth
from torchlift.core import Fit, Task
from torchlift.core.loss import split
from torchlift.deploy.measuring import measure
from torchlift.errors import TorchliftError
from torchlift.lifts.shallower import depth, merging
from torchlift.lifts.units import Unit, ends, units, without
from torchlift.recipes.recipe import Recipe
from torchlift.tree import each

Criterion = Literal["linearity", "removal", "cka"]
CRITERIA = ("linearity", "removal", "cka")


class Note(nn.Module):
    """One number that a run remembers."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros((), dtype=torch.int64))


@dataclasses.dataclass(frozen=True)
class LayerPruning(Recipe):
    """Train; find layers that act linearly on the data; merge them; train on (Bai et al., 2024, section 5.4).

    How far: all layers whose linearity reaches ``threshold``; or, one after the other, until ``layers`` that
    bend are left, a call takes ``latency`` milliseconds (one sample), or the validation metric (before
    training on) has fallen by ``drop``. ``criterion``: which goes next. ``"linearity"``: the most linear layer
    is merged into the next. Its rivals leave a block out whole (blocks of residual networks, square layers with
    their activation): ``"removal"`` the one without which the loss is least, ``"cka"`` the one whose output is
    most like its input; they need a target other than the threshold. ``finetune`` is the part of the budget for
    what is left, ``samples`` the number of training inputs to look at.
    """

    threshold: float = 0.99
    layers: int | None = None
    finetune: float = 0.25
    criterion: Criterion = "linearity"
    drop: float | None = None
    latency: float | None = None
    samples: int = 2048
    grow: bool = False

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise TorchliftError(f"LayerPruning's criterion is one of {CRITERIA}, got {self.criterion!r}.")
        if sum(aim is not None for aim in (self.layers, self.drop, self.latency)) > 1:
            raise TorchliftError("LayerPruning takes one target: layers, drop or latency.")
        if self.criterion != "linearity" and not self.targeted:
            raise TorchliftError(
                f"criterion={self.criterion!r} has no threshold: give layers, drop or latency."
            )
        if not 0 <= self.finetune < 1:
            raise TorchliftError(f"finetune is a part of the budget in [0, 1), got {self.finetune}.")

    @property
    def targeted(self) -> bool:
        """Whether there is a target other than the threshold."""
        return not (self.layers is None and self.drop is None and self.latency is None)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train, prune, train."""
        x = inputs(fit, self.samples)
        log = Depth(x)
        fit(task, name="train", share=1 - self.finetune, log=log)
        small = self.pruned(task, fit, x)
        if self.finetune:
            fit(small, name="finetune", share=self.finetune, log=log)
        return small

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether there is anything that could go, by the structure of the network."""
        if fit is None:
            return None
        x = inputs(fit, 8)
        if self.criterion != "linearity":
            return None if units(task.model, x) else "LayerPruning: no block or square layer can be left out."
        done = merging(task.model, x, layers=0, grow=self.grow)
        return None if done.merged else f"LayerPruning can merge nothing here: {done}"

    def pruned(self, task: Task, fit: Fit, x: Any) -> Task:
        """The task with fewer layers; how many is decided once in a run, since a measured time never repeats."""
        if not self.targeted:
            return self.shallow(task, x, None)
        note = Task(Note(), task.loss)

        def decide(remembered: Any) -> None:
            remembered.model.value.fill_(self.steps(task, fit, x))

        fit.once("choose the depth", decide, note)
        assert isinstance(note.model, Note)
        wanted = int(note.model.value)
        return next(small for number, small in enumerate(self.sequence(task, fit, x)) if number == wanted)

    def shallow(self, task: Task, x: Any, layers: int | None) -> Task:
        """By linearity."""
        done = merging(task.model, x, self.threshold, layers=layers, grow=self.grow)
        return Task(done.model, task.loss)

    def sequence(self, task: Task, fit: Fit, x: Any) -> Iterator[Task]:
        """The task, then with one layer less, and so on until nothing more can go."""
        while True:
            yield task
            smaller = self.one_less(task, fit, x)
            if smaller is None:
                return
            task = smaller

    def one_less(self, task: Task, fit: Fit, x: Any) -> Task | None:
        """Without the layer that the criterion names; None if none can go."""
        if self.criterion == "linearity":
            before = depth(task.model, x)
            small = self.shallow(task, x, before - 1)
            return small if depth(small.model, x) < before else None
        found = units(task.model, x)
        if not found:
            return None
        if self.criterion == "cka":
            return self.most_alike(task, found, x)
        smaller = (Task(without(task.model, unit), task.loss) for unit in found)
        return min(smaller, key=lambda one: fit.evaluate(one).loss)

    def most_alike(self, task: Task, found: list[Unit], x: Any) -> Task:
        """Without the unit whose output is most like its input."""
        few = each(lambda t: t[:256], x)
        best = max(found, key=lambda unit: cka(*ends(task.model, unit, few)))
        return Task(without(task.model, best), task.loss)

    def steps(self, task: Task, fit: Fit, x: Any) -> int:
        """How many layers to take out to reach the target."""
        start = fit.evaluate(task)
        number = 0
        for number, small in enumerate(self.sequence(task, fit, x)):
            if self.layers is not None and depth(small.model, x) <= self.layers:
                return number
            if self.latency is not None and latency(small.model, x) <= self.latency:
                return number
            if self.drop is not None:
                score = fit.evaluate(small)
                fallen = (
                    start.metric - score.metric if start.higher_is_better else score.metric - start.metric
                )
                if fallen > self.drop:
                    return max(0, number - 1)
        if self.drop is None:
            why = self.reasons(task, x)
            raise TorchliftError(f"{self!r} is out of reach: no more than {number} layers can go. {why}")
        return number

    def reasons(self, task: Task, x: Any) -> str:
        """Why the rest must stay."""
        if self.criterion != "linearity":
            return "No other block has an output of its input's shape."
        kept = merging(task.model, x, layers=0, grow=self.grow).kept
        return " ".join(f"{name}: {why}." for name, why in kept.items())


def inputs(fit: Fit, samples: int) -> Any:
    """The first training inputs."""
    found: list[Any] = []
    count = 0
    for batch in fit.batches():
        x = split(batch)[0]
        found.append(x)
        count += len(x if isinstance(x, Tensor) else next(iter(x.values())))
        if count >= samples:
            break
    if isinstance(found[0], Tensor):
        return torch.cat(found)[:samples]
    return {key: torch.cat([part[key] for part in found])[:samples] for key in found[0]}


def latency(model: nn.Module, x: Any) -> float:
    """Milliseconds of a call on one sample."""
    return measure(model, each(lambda t: t[:1], x)).latency_ms
