"""Small inputs first: the problem is projected down, solved there, and its solution lifted."""

import copy
import dataclasses
import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import adaptive_avg_pool2d

from torchlift.core import Batch, Fit, Problem, Task
from torchlift.core.selection import matches
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.recipe import Recipe, Started
from torchlift.train.cost import probe
from torchlift.tree import each, leaves


def length_at(full: int, size: float) -> int:
    """A length at a size: a part of it up to 1, a number of pixels or tokens above."""
    return max(1, min(full, round(full * size if size <= 1 else size)))


def shrink_input(x: Tensor, size: float) -> Tensor:
    """Pictures (n, c, h, w): averaged down to the size; token sequences (n, t): the first ones."""
    if x.ndim == 4 and x.is_floating_point():
        height = length_at(x.shape[2], size)
        return adaptive_avg_pool2d(x, (height, max(1, round(x.shape[3] * height / x.shape[2]))))
    if x.ndim == 2 and not x.is_floating_point():
        return x[:, : length_at(x.shape[1], size)]
    return x


def shrink_positions(table: Tensor, size: float) -> Tensor:
    """A table (…, t, d) of positions on a square grid, with class tokens before it, averaged down."""
    side = int(table.shape[-2] ** 0.5)
    extra = table.shape[-2] - side * side
    first, grid = table[..., :extra, :], table[..., extra:, :]
    square = grid.reshape(-1, side, side, grid.shape[-1]).permute(0, 3, 1, 2)
    small = adaptive_avg_pool2d(square, length_at(side, size)).flatten(2).transpose(1, 2)
    return torch.cat([first, small.reshape(*table.shape[:-2], -1, table.shape[-1])], -2)


class Coarse(Problem):
    """f at smaller inputs: the same weights, tables of positions averaged down."""

    def __init__(self, base: Task, size: float, positions: str) -> None:
        super().__init__()
        self.base, self.size, self.loss = base, size, base.loss
        named = dict(base.model.named_parameters())
        self.tables = [n for n, p in named.items() if positions and p.ndim > 1 and matches(n, positions)]

    def shrunk(self, batch: Batch) -> Batch:
        """The batch at the smaller size; targets that follow the positions of a text are cut with them."""
        x, y = inputs_and_target(batch)
        small = each(lambda t: shrink_input(t, self.size), x)
        if any(t.shape == y.shape and not t.is_floating_point() for t in leaves(x)):
            y = shrink_input(y, self.size)
        return {**small, **{k: y for k in batch if k not in small}} if isinstance(batch, dict) else (small, y)

    def objective(self, batch: Batch) -> Tensor:
        """The loss at the smaller size, with the small tables in place."""
        small = self.shrunk(batch)
        if not self.tables:
            return self.base.objective(small)
        pairs = zip(leaves(inputs_and_target(small)[0]), leaves(inputs_and_target(batch)[0]), strict=True)
        ratio = min(few.shape[-1] / many.shape[-1] for few, many in pairs)
        full = {f"model.{n}": self.base.model.get_parameter(n) for n in self.tables}
        tables = {name: shrink_positions(table, ratio) for name, table in full.items()}
        return functional_call(self.base, tables, (small,)) - self.base.penalty()

    def task_loss(self, batch: Batch) -> Tensor:
        """The user's loss at full size: what counts in the end."""
        return self.base.task_loss(batch)

    def penalty(self) -> Tensor | float:
        """The base's."""
        return self.base.penalty()

    def predict(self, x: Any) -> Any:
        """At full size."""
        return self.base.predict(x)

    def body(self) -> None:
        """None: layers cannot be replaced here."""

    def label(self, name: str) -> str:
        """The user's name."""
        return self.base.label(name.removeprefix("base."))


@dataclasses.dataclass(frozen=True)
class CoarseToFine(Recipe):
    """min f at inputs of ``sizes``[0] for ``shares``[0] of the budget, then at the next size, and so on to f.

    A projection of the problem: pictures are averaged down, texts are cut to shorter windows, the weights
    stay the same. A size is a part of the full one (0.5), or pixels or tokens (16). ``shares`` are parts of
    the cost: small steps are cheap, so there are more of them. ``positions``: a glob on tables of positions,
    averaged down while inputs are small. One schedule and one optimizer run over all sizes. Pays for vision
    transformers and networks with global pooling. A network whose head reads a flattened map cannot take
    smaller inputs: an error.
    """

    sizes: tuple[float, ...] = (0.5, 1.0)
    shares: tuple[float, ...] = (0.5, 0.5)
    positions: str = "*pos*"

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.shares) or not self.sizes:
            raise TorchliftError(f"{self!r}: as many shares as sizes are needed.")
        if not all(size > 0 for size in (*self.sizes, *self.shares)):
            raise TorchliftError(f"{self!r}: sizes and shares are positive.")

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """None if the model takes the smaller inputs, else what it said."""
        if fit is None:
            return None
        batch = fit.example()
        x = inputs_and_target(batch)[0]
        if all(shrink_input(t, size).shape == t.shape for t in leaves(x) for size in self.sizes):
            return f"{self!r} needs pictures (n, c, h, w) or token sequences (n, t) larger than its sizes."
        if any(shrink_input(t, self.sizes[-1]).shape != t.shape for t in leaves(x)):
            return f"{self!r} must end at the full size."
        trial = copy.deepcopy(task).eval()
        for size in self.sizes[:-1]:
            try:
                with torch.no_grad():
                    Coarse(trial, size, self.positions).objective(batch)
            except Exception as error:  # whatever a model says of a size it was not made for
                reason = str(error).partition("\n")[0]
                return f"{self!r}: the model does not take inputs of size {size:g} ({reason})."
        return None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Each size in turn, along one schedule."""
        reason = self.accepts(task, fit)
        if reason is not None:
            raise TorchliftError(reason)
        total = sum(self.shares)
        ends = [end / total for end in itertools.accumulate(self.shares)]
        paid = math.isfinite(fit.left())
        fractions = [share / total for share in self.shares]
        problems = self.trained_problems(task, fit)
        before = None
        for (problem, passes), size, portion, end in zip(problems, self.sizes, fractions, ends, strict=True):
            before = fit(
                problem,
                name="full size" if problem is task else f"size {size:g}",
                share=portion if paid else passes,
                span=(end - portion, end),
                keep=None if problem is task else "last",
                warm=before,
            )
        return task

    def trained_problems(self, task: Task, fit: Fit) -> list[tuple[Problem, float]]:
        """A problem for each size; the steps that its share of the cost pays for, as a part of all."""
        small: list[Problem] = [Coarse(task, size, self.positions) for size in self.sizes[:-1]]
        problems = [*small, task]
        batch = fit.example()
        steps = [share / probe(one, batch).flops for one, share in zip(problems, self.shares, strict=True)]
        return [(problem, count / sum(steps)) for problem, count in zip(problems, steps, strict=True)]

    def start(self, task: Task, fit: Fit) -> Started:
        """All sizes on a part of the budget."""
        trained = self(task, fit)
        return Started(trained, trained)
