"""What is true of every lift. Each law is a function that passes or raises ``AssertionError``.

A law takes the lift, a task it applies to and a batch; ``fit`` defaults to a few gradient steps on the
batch. Run your own lift through all of them with :func:`check`.
"""

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Lift, Node, Problem, Task, anneal, nodes
from torchlift.core.loss import output, split

Law = Callable[[Lift, Task, Batch], None]

STEPS = 3


def starts_where_the_problem_is(lift: Lift, task: Task, batch: Batch) -> None:
    """The lifted problem predicts what the task predicts, and so does its objective, less penalties."""
    if not lift.preserving:
        return
    with torch.no_grad():
        task, lifted = copy.deepcopy(task).eval(), lift.lift(task).eval()
        x, _ = split(batch)
        assert_close(output(lifted.predict(x)), output(task.predict(x)), "prediction")
        assert_close(lifted.objective(batch), task.objective(batch), "objective")


def leaves_its_input_alone(lift: Lift, task: Task, batch: Batch) -> None:
    """``lift`` does not change the task, ``project`` does not change the lifted problem."""
    before = snapshot(task)
    lifted = lift.lift(task)
    assert_same(snapshot(task), before, "lift changed the task")
    descend(lifted, batch)
    before = snapshot(lifted)
    lift.project(lifted, fitter(batch))
    assert_same(snapshot(lifted), before, "project changed the lifted problem")


def comes_back_plain(lift: Lift, task: Task, batch: Batch) -> None:
    """Projected: a task, no trace of the lift, the same modules and state-dict keys, ties kept."""
    small = projected(lift, task, batch)
    assert type(small) is Task, f"project gave a {type(small).__name__}, not a Task"
    traces = [
        n
        for n, m in small.model.named_modules()
        if isinstance(m, Node | Problem) or vars(m)["_forward_hooks"]
    ]
    assert not traces, f"traces of the lift remain at {traces}"
    assert bool(torch.isfinite(small(batch)))
    if not lift.reshapes:
        kinds = [[type(m) for m in t.model.modules()] for t in (small, task)]
        assert kinds[0] == kinds[1], "the module types changed"
        shapes = [{n: tuple(t.shape) for n, t in t.state_dict().items()} for t in (small, task)]
        assert list(shapes[0].items()) == list(shapes[1].items()), "the state dict changed"
        assert count(small) == count(task), "weights that were tied are not tied any more"


def copies_are_free(lift: Lift, task: Task, batch: Batch) -> None:
    """A deepcopy can be trained and projected; the original does not move and still trains and projects."""
    lifted = lift.lift(task)
    descend(lifted, batch)
    before, twin = snapshot(lifted), copy.deepcopy(lifted)
    lift.project(twin, fitter(batch))
    descend(twin, batch)
    assert_same(snapshot(lifted), before, "training a copy moved the original")
    descend(lifted, batch)
    lift.project(lifted, fitter(batch))


def rebuilds_from_its_state(lift: Lift, task: Task, batch: Batch) -> None:
    """Lifting anew and loading the state dict gives the same objective."""
    lifted = lift.lift(task)
    descend(lifted, batch)
    again = lift.lift(task)
    again.load_state_dict(through_a_file(lifted.state_dict()))
    assert_equal(objective(again, batch), objective(lifted, batch), "the reloaded objective differs")


def resumes_bitwise(lift: Lift, task: Task, batch: Batch) -> None:
    """Stop, save, rebuild, load, go on: the same as never having stopped, to the last bit."""
    straight = lift.lift(task)
    optimizer = sgd(straight)
    torch.manual_seed(0)
    descend(straight, batch, optimizer, start=0)
    saved = through_a_file([straight.state_dict(), optimizer.state_dict(), torch.get_rng_state()])
    descend(straight, batch, optimizer, start=STEPS)

    resumed = lift.lift(task)
    resumed.load_state_dict(saved[0])
    optimizer = sgd(resumed)
    optimizer.load_state_dict(saved[1])
    torch.set_rng_state(saved[2])
    descend(resumed, batch, optimizer, start=STEPS)
    assert_same(snapshot(resumed), snapshot(straight), "the resumed run differs")


def gradients_are_right(lift: Lift, task: Task, batch: Batch) -> None:
    """Along a random direction, autograd's derivative is the difference quotient's (float64).

    Where a node declares a surrogate gradient, the quotient is the surrogate's.
    """
    lifted = lift.lift(copy.deepcopy(task).double()).double().eval()
    batch = as_double(batch)
    parameters = [p for p in lifted.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # away from kinks such as a gate's threshold or an exact zero
        for p in parameters:
            p.add_(1e-2 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    gradients = torch.autograd.grad(lifted(batch), parameters, materialize_grads=True, allow_unused=True)
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    step, values = 1e-7, list[float]()
    for _, node in nodes(lifted):
        declared = node.surrogate()
        if declared is not None:
            node.forward = declared
    with torch.no_grad():
        for sign in (1.0, -2.0):
            for p, d in zip(parameters, direction, strict=True):
                p.add_(sign * step * d)
            values.append(objective(lifted, batch).item())
    quotient = (values[0] - values[1]) / (2 * step)
    assert abs(slope - quotient) <= 1e-4 * max(1.0, abs(slope)), f"autograd {slope}, difference {quotient}"


def every_coordinate_learns(lift: Lift, task: Task, batch: Batch) -> None:
    """No trainable parameter is left without a gradient that the task's own parameters have."""
    dead = {name for name, p in grads(copy.deepcopy(task), batch).items() if p is None}
    silent = [name for name, g in grads(lift.lift(task), batch).items() if g is None]
    added = [name for name in silent if not any(same_weight(name, other) for other in dead)]
    assert not added, f"no gradient reaches {added}"


def exports(lift: Lift, task: Task, batch: Batch) -> None:
    """The projected model goes through ``torch.export`` and answers alike."""
    model = projected(lift, task, batch).body()
    assert model is not None, "the projected problem has no model"
    model.eval()
    x, _ = split(batch)
    args, kwargs = ((), x) if isinstance(x, dict) else ((x,), {})
    program = torch.export.export(model, args, kwargs)
    with torch.no_grad():
        exported, eager = program.module()(*args, **kwargs), model(*args, **kwargs)
    assert_close(output(exported), output(eager), "exported output")


def lands(lift: Lift, task: Task, batch: Batch, bound: float = 1e-5) -> None:
    """At t = 1 the projected loss is within ``bound`` of the lifted one (for lifts that do not learn)."""
    if lift.learns:
        return
    lifted = lift.lift(task)
    descend(lifted, batch)
    anneal(lifted, 1.0)
    with torch.no_grad():
        small = lift.project(lifted)
        small.eval()
        lifted.eval()
        soft_loss, hard_loss = lifted.objective(batch), small.objective(batch)
    gap = float(hard_loss - soft_loss)
    assert abs(gap) <= bound, f"the gap is {gap}, more than {bound}"


LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        starts_where_the_problem_is,
        leaves_its_input_alone,
        comes_back_plain,
        copies_are_free,
        rebuilds_from_its_state,
        resumes_bitwise,
        gradients_are_right,
        every_coordinate_learns,
        exports,
    )
}


def check(lift: Lift, task: Task, batch: Batch) -> None:
    """Run a lift through every law of :data:`LAWS`."""
    for law in LAWS.values():
        law(lift, task, batch)


def fitter(batch: Batch) -> Callable[..., None]:
    """A ``fit`` for projections that learn: a few steps on one batch."""

    def fit(problem: Problem, **settings: Any) -> None:
        del settings
        descend(problem, batch)

    return fit


def descend(problem: Problem, batch: Batch, optimizer: Any = None, start: int = 0) -> None:
    """A few steps of momentum SGD while t goes from 0 to 1."""
    optimizer = optimizer or sgd(problem)
    problem.train()
    for step in range(start, start + STEPS):
        anneal(problem, step / (2 * STEPS))
        problem(batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def sgd(problem: Problem) -> torch.optim.SGD:
    """Small steps: laws are about mechanics, not about minima."""
    return torch.optim.SGD([p for p in problem.parameters() if p.requires_grad], lr=1e-3, momentum=0.9)


def projected(lift: Lift, task: Task, batch: Batch) -> Problem:
    """Lift, train a little, project."""
    lifted = lift.lift(task)
    descend(lifted, batch)
    return lift.project(lifted, fitter(batch))


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


def snapshot(module: nn.Module) -> dict[str, Tensor]:
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

    def convert(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    return (
        {k: convert(v) for k, v in batch.items()} if isinstance(batch, dict) else tuple(map(convert, batch))
    )


def count(module: nn.Module) -> int:
    """Distinct parameter entries."""
    return sum(p.numel() for p in module.parameters())


def assert_same(got: dict[str, Tensor], want: dict[str, Tensor], what: str) -> None:
    """Equal names, equal bits."""
    differ = [name for name in want if name not in got or not torch.equal(got[name], want[name])]
    assert got.keys() == want.keys() and not differ, f"{what}: {differ[:5]}"  # noqa: PT018  (one message)


def assert_equal(got: Tensor, want: Tensor, what: str) -> None:
    """Equal bits."""
    assert torch.equal(got, want), f"{what}: {got} is not {want}"


def assert_close(got: Tensor, want: Tensor, what: str, tolerance: float = 1e-5) -> None:
    """Largest difference within the tolerance, relative to the largest entry."""
    difference = float((got - want).abs().max()) / max(1.0, float(want.abs().max()))
    assert difference <= tolerance, f"{what}: off by {difference}"
