"""What the laws are tried with: a few steps on one batch, and comparisons with a stated tolerance."""

import io
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Fit, Lift, Problem, Task, step
from torchlift.train.settings import Settings
from torchlift.tree import each

STEPS = 3


class Steps(Fit):
    """A fit of a few gradient steps on one batch."""

    epochs, steps, settings = 1.0, STEPS, Settings()

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __call__(self, problem: Problem, **settings: Any) -> None:
        """Descend a little."""
        del settings
        descended(problem, self.batch)

    def evaluate(self, problem: Problem) -> float:
        """The user's loss on the batch."""
        with torch.no_grad():
            return float(problem.task_loss(self.batch))

    def batches(self) -> Iterator[Batch]:
        """The one batch."""
        yield self.batch


def descend(problem: Problem, batch: Batch, optimizer: Any = None, start: int = 0) -> None:
    """A few steps of momentum SGD while t goes from 0 to 1."""
    optimizer = optimizer or sgd(problem)
    problem.train()
    for number in range(start, start + STEPS):
        step(problem, batch, optimizer, t=number / (2 * STEPS))


def descended(problem: Problem, batch: Batch) -> Problem:
    """The problem after a few steps."""
    with torch.enable_grad():
        descend(problem, batch)
    return problem


def sgd(problem: Problem) -> torch.optim.SGD:
    """Small steps: laws are about mechanics, not about minima."""
    return torch.optim.SGD([p for p in problem.parameters() if p.requires_grad], lr=1e-3, momentum=0.9)


def raised(lift: Lift, task: Task, batch: Batch) -> Problem:
    """The lifted problem; a lift that looks at data sees the batch. Random draws are the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return lift.lift(task, Steps(batch))


def projected(lift: Lift, task: Task, batch: Batch) -> Problem:
    """Lift, train a little, project."""
    lifted = raised(lift, task, batch)
    descend(lifted, batch)
    return lift.project(lifted, Steps(batch))


def objective(problem: Problem, batch: Batch) -> Tensor:
    """The objective with its penalties at a fixed random state."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return problem(batch)


def grads(problem: Problem, batch: Batch) -> dict[str, Tensor | None]:
    """Each trainable parameter's gradient, or None."""
    problem.train()
    problem(batch).backward()
    return {name: p.grad for name, p in problem.named_parameters() if p.requires_grad}


def same_weight(lifted: str, original: str) -> bool:
    """Whether a coordinate's name speaks of this weight of the task."""
    return original.replace(".", "/") in lifted.replace(".", "/").replace("/inner", "")


def state_copy(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the state, copied."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def through_a_file(tree: Any) -> Any:
    """Save and load, without unpickling anything but tensors."""
    file = io.BytesIO()
    torch.save(tree, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def as_double(batch: Batch) -> Batch:
    """Floating-point tensors of the batch in float64."""
    return each(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, batch)


def parameter_count(module: nn.Module) -> int:
    """Distinct parameter entries."""
    return sum(p.numel() for p in module.parameters())


def assert_same(actual: dict[str, Tensor], want: dict[str, Tensor], what: str) -> None:
    """Equal names, equal bits."""
    differ = [name for name in want if name not in actual or not torch.equal(actual[name], want[name])]
    assert actual.keys() == want.keys() and not differ, f"{what}: {differ[:5]}"  # noqa: PT018  (one message)


def assert_equal(actual: Tensor, want: Tensor, what: str) -> None:
    """Equal bits."""
    assert torch.equal(actual, want), f"{what}: {actual} is not {want}"


def assert_close(actual: Tensor, want: Tensor, what: str, tolerance: float = 1e-5) -> None:
    """Largest difference within the tolerance, relative to the largest entry."""
    difference = float((actual - want).abs().max()) / max(1.0, float(want.abs().max()))
    assert difference <= tolerance, f"{what}: off by {difference}"
