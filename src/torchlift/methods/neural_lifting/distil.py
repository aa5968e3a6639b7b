"""Projection that learns: the small model matches the large one, and the task as well."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.core import Batch, Dial, Frozen, Problem
from torchlift.errors import TorchliftError
from torchlift.methods.neural_lifting.tap import Tap, drain, put, tap

Match = Literal["mse", "kl", "cosine"] | Callable[[Tensor, Tensor], Tensor]
"""``match(student, teacher) -> scalar``, by name or by hand."""

CACHE = 2**30
"""Bytes of targets worth keeping: beyond them the teacher runs again."""


def kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(softmax(teacher) ‖ softmax(student)), the mean over samples."""
    classes = 1 if student.ndim > 3 else -1
    log_p, log_q = (functional.log_softmax(logits, classes) for logits in (student, teacher))
    rows = log_p.numel() // log_p.shape[classes]
    return functional.kl_div(log_p, log_q, reduction="sum", log_target=True) / rows


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """1 − cos(student, teacher), the mean over samples."""
    return 1 - functional.cosine_similarity(student.flatten(1), teacher.flatten(1)).mean()


MATCHES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": functional.mse_loss,
    "kl": kl,
    "cosine": cosine_distance,
}


class Distil(Problem):
    """mix · match(z, z*) + (1 − mix) · task, with z* the frozen teacher's (Neural lifting, eq. 1; mix is λ).

    ``modules`` are the names of the modules whose outputs z are matched, each with the index of the tensor
    in a structured output; the name ``""`` is the model itself. ``mix``: a number, or (start, end), turned
    linearly. At mix = 1 the task has no part (Algorithm 1). With ``freeze_head`` the task's gradient
    reaches parameters through z alone, so that what comes after z rests.

    Targets come from the teacher in evaluation mode. Where ``fit`` shows fixed data (:meth:`prepare`), they
    are computed once and looked up by the samples' positions; otherwise again for every batch.
    """

    def __init__(
        self,
        student: Problem,
        teacher: Problem,
        modules: Mapping[str, int | str | None] | None = None,
        match: Match = "mse",
        mix: float | tuple[float, float] = 0.2,
        freeze_head: bool = False,
    ) -> None:
        super().__init__()
        check_match(match, mix)
        modules = {"": None} if modules is None else modules
        self.student = copy.deepcopy(student)
        self.taps = [tap(self.student, name, index) for name, index in modules.items()]
        self.teacher = Frozen(copy.deepcopy(teacher))
        self.sources = [tap(self.frozen(), name, index) for name, index in modules.items()]
        self.match = MATCHES[match] if isinstance(match, str) else match
        self.mix = Dial(*(mix if isinstance(mix, tuple) else (mix, mix)), scale="linear")
        self.freeze_head, self.loss = freeze_head, student.loss
        self.targets: list[Tensor] | None = None

    def frozen(self) -> Problem:
        """The teacher."""
        assert isinstance(self.teacher.module, Problem)
        return self.teacher.module

    def objective(self, batch: Batch) -> Tensor:
        """mix · match + (1 − mix) · task."""
        batch, index = split_index(batch) if self.indexed and self.training else (batch, None)
        task = self.student.objective(batch)
        z = drain(self.taps)
        target = self.latents(batch) if index is None else self.stored(index)
        match = torch.stack([self.match(a, b) for a, b in zip(z, target, strict=True)]).sum()
        if self.mix.start == self.mix.end == 1:
            return match
        mix = self.mix().to(match.dtype)
        return mix * match + (1 - mix) * (gradient_through(task, z) if self.freeze_head else task)

    def task_loss(self, batch: Batch) -> Tensor:
        """The user's loss of the student."""
        loss = self.student.task_loss(batch)
        drain(self.taps)
        return loss

    def label(self, name: str) -> str:
        """The student's name."""
        return self.student.label(name.removeprefix("student."))

    def latents(self, batch: Batch) -> list[Tensor]:
        """The teacher's targets on a batch."""
        with torch.no_grad():
            self.frozen().objective(batch)
        return drain(self.sources)

    def stored(self, index: Tensor) -> list[Tensor]:
        """The targets of the samples at the given positions."""
        assert self.targets is not None
        return [target[index.to(target.device)] for target in self.targets]

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Compute the targets of all samples once, unless they are too large to keep."""
        collected: list[list[Tensor]] = []
        size = 0
        for batch in batches:
            collected.append(self.latents(batch))
            size += sum(target.nbytes for target in collected[-1])
            if size > CACHE:
                return
        self.targets = [torch.cat(column) for column in zip(*collected, strict=True)]
        self.indexed = True

    def penalty(self) -> Tensor | float:
        """The student's."""
        return self.student.penalty()

    def predict(self, x: Any) -> Any:
        """The student's prediction."""
        prediction = self.student.predict(x)
        drain(self.taps)
        return prediction

    def body(self) -> nn.Module | None:
        """The student's model."""
        return self.student.body()

    def result(self) -> Problem:
        """A copy of the student as it is now, without taps."""
        student = copy.deepcopy(self.student)
        for name, module in [*student.named_modules()]:
            if isinstance(module, Tap):
                put(student, name, module.project())
        return student


def gradient_through(task: Tensor, z: list[Tensor]) -> Tensor:
    """The task's value, with a gradient that flows through z only: ⟨∂task/∂z, z⟩ in its place."""
    slopes = torch.autograd.grad(task, z, retain_graph=True)
    linear = torch.stack(
        [(slope * coordinate).sum() for slope, coordinate in zip(slopes, z, strict=True)]
    ).sum()
    return task.detach() + linear - linear.detach()


def split_index(batch: Batch) -> tuple[Batch, Tensor]:
    """A batch without the positions of its samples, and the positions."""
    if isinstance(batch, Mapping):
        return {name: column for name, column in batch.items() if name != "index"}, batch["index"]
    return tuple(batch[:-1]), batch[-1]


def check_match(match: Match, mix: float | tuple[float, float]) -> None:
    """An error for a loss nobody knows or a mix outside [0, 1]."""
    if not callable(match) and match not in MATCHES:
        raise TorchliftError(
            f"match {match!r} is not known: {', '.join(MATCHES)}, or match(student, teacher)."
        )
    if not all(0 <= value <= 1 for value in (mix if isinstance(mix, tuple) else (mix,))):
        raise TorchliftError(f"mix must lie in [0, 1] (1: matching only, 0: the task only), got {mix}.")
