"""Train a deep network, take out the layers that do least, train what is left."""

import dataclasses
from typing import Any

from torchlift.analyze.tracking import Depth
from torchlift.core import Fit, Task, masks_of
from torchlift.errors import SelectionError, TorchliftError
from torchlift.methods.depth.reduce import depth, reduced
from torchlift.methods.depth.thinning import CRITERIA, Thinning, ThinningCriterion, inputs, latency
from torchlift.methods.depth.units import removable_units
from torchlift.methods.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class LayerPruning(Recipe):
    """Train; find layers that act linearly on the data; merge them; train on (Bai et al., 2024, section 5.4).

    How far: all layers whose linearity reaches ``threshold``; or, one after the other, until ``layers`` that
    bend are left, a call takes ``latency`` milliseconds (one sample), or the validation metric (before
    training on) has fallen by ``drop``. ``criterion``: which goes next. ``"linearity"``: the most linear
    layer is merged into the next. Its rivals leave a block out whole (blocks of residual networks, square
    layers with their activation): ``"removal"`` the one without which the loss is least, ``"cka"`` the one
    whose output is most like its input; they need a target other than the threshold. ``finetune`` is the part
    of the budget for what is left, ``samples`` the number of training inputs to look at.
    """

    threshold: float = 0.99
    layers: int | None = None
    finetune: float = 0.25
    criterion: ThinningCriterion = "linearity"
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
            raise TorchliftError(f"finetune is a fraction of the budget in [0, 1), got {self.finetune}.")

    @property
    def targeted(self) -> bool:
        """Whether there is a target other than the threshold."""
        return not (self.layers is None and self.drop is None and self.latency is None)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train, prune, train."""
        reason = self.accepts(task)
        if reason is not None:
            raise SelectionError(reason)
        x = inputs(fit, self.samples)
        log = Depth(x)
        fit(task, name="train", share=1 - self.finetune, log=log)
        small = self.pruned(task, fit, x)
        if self.finetune:
            fit(small, name="finetune", share=self.finetune, log=log)
        return small

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether there is anything that could go, by the structure of the network."""
        pruned = next(iter(masks_of(task)), None) if self.criterion == "linearity" else None
        if pruned is not None:
            return f"LayerPruning would fill the zeros of {task.label(pruned)}: use criterion='removal'."
        if fit is None:
            return None
        x = inputs(fit, 8)
        if self.criterion != "linearity":
            return (
                None
                if removable_units(task.model, x)
                else "LayerPruning: no block or square layer can be left out."
            )
        done = reduced(task.model, x, layers=0, grow=self.grow)
        why = "; ".join(f"{name}: {reason}" for name, reason in done.kept.items())
        if not done.merged:
            return f"LayerPruning can merge nothing here ({why or 'no layer bends'})."
        unreachable = self.layers is not None and done.depth[1] > self.layers
        return (
            f"LayerPruning(layers={self.layers}) leaves {done.depth[1]} layers ({why})."
            if unreachable
            else None
        )

    def pruned(self, task: Task, fit: Fit, x: Any) -> Task:
        """The task with fewer layers; how many is decided once in a run: a measured time never repeats."""
        thinning = Thinning(self.criterion, x, fit, self.grow)
        number = fit.remember("choose the depth", lambda: self.chosen(task, thinning))
        return thinning.after(task, number, self.threshold)

    def chosen(self, task: Task, thinning: Thinning) -> int:
        """How many layers go to reach the target; −1: as many as the threshold says."""
        if not self.targeted:
            return -1
        fit, x, number = thinning.fit, thinning.x, 0
        start = None if self.drop is None else fit.evaluate(task)
        for number, small in enumerate(thinning.sequence(task)):
            if self.layers is not None and depth(small.model, x) <= self.layers:
                return number
            if self.latency is not None and latency(small.model, x) <= self.latency:
                return number
            if start is not None and self.drop is not None and fallen(start, fit.evaluate(small)) > self.drop:
                return max(0, number - 1)
        if self.drop is None:
            why = thinning.reasons(task)
            raise TorchliftError(f"{self!r} is out of reach: no more than {number} layers can go. {why}")
        return number


def fallen(start: Any, score: Any) -> float:
    """How much worse a metric is than it was."""
    return start.metric - score.metric if start.higher_is_better else score.metric - start.metric
