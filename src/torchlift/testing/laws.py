"""What is true of every lift. Each law is a function that passes or raises ``AssertionError``.

A law takes the lift, a task it applies to and a batch; ``fit`` defaults to a few gradient steps on the
batch. Run your own lift through all of them with :func:`check`.
"""

import copy
import pickle
import warnings
from collections.abc import Callable

import safetensors.torch
import torch
from torch import Tensor, nn

from torchlift.core import (
    Batch,
    Lift,
    LiftChain,
    Node,
    Problem,
    Reparametrized,
    Stored,
    Task,
    anneal,
    groups,
    masks_of,
    nodes,
    store,
    stored,
)
from torchlift.core.node import lift_coordinates
from torchlift.core.stored import forget
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target, output
from torchlift.testing.steps import (
    STEPS,
    Steps,
    as_double,
    assert_close,
    assert_equal,
    assert_same,
    descend,
    descended,
    grads,
    objective,
    parameter_count,
    projected,
    raised,
    same_weight,
    sgd,
    state_copy,
    through_a_file,
)

Law = Callable[[Lift, Task, Batch], None]


def starts_where_the_problem_is(lift: Lift, task: Task, batch: Batch) -> None:
    """The lifted problem predicts what the task predicts, and so does its objective, less penalties."""
    if not lift.preserving:
        return
    with torch.no_grad():
        task, lifted = copy.deepcopy(task).eval(), raised(lift, task, batch).eval()
        x, _ = inputs_and_target(batch)
        assert_close(output(lifted.predict(x)), output(task.predict(x)), "prediction")
        assert_close(lifted.objective(batch), task.objective(batch), "objective")


def leaves_its_input_alone(lift: Lift, task: Task, batch: Batch) -> None:
    """``lift`` does not change the task, ``project`` does not change the lifted problem."""
    before = state_copy(task)
    lifted = raised(lift, task, batch)
    assert_same(state_copy(task), before, "lift changed the task")
    descend(lifted, batch)
    before = state_copy(lifted)
    lift.project(lifted, Steps(batch))
    assert_same(state_copy(lifted), before, "project changed the lifted problem")


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
        assert parameter_count(small) == parameter_count(task), "weights that were tied are not tied any more"


def copies_are_free(lift: Lift, task: Task, batch: Batch) -> None:
    """A deepcopy can be trained and projected; the original does not move and still trains and projects."""
    lifted = raised(lift, task, batch)
    descend(lifted, batch)
    before, twin = state_copy(lifted), copy.deepcopy(lifted)
    lift.project(twin, Steps(batch))
    descend(twin, batch)
    assert_same(state_copy(lifted), before, "training a copy moved the original")
    descend(lifted, batch)
    lift.project(lifted, Steps(batch))


def rebuilds_from_its_state(lift: Lift, task: Task, batch: Batch) -> None:
    """Lifting again and loading the state dict gives the same objective."""
    lifted = raised(lift, task, batch)
    descend(lifted, batch)
    again = raised(lift, task, batch)
    again.load_state_dict(through_a_file(lifted.state_dict()))
    assert_equal(objective(again, batch), objective(lifted, batch), "the reloaded objective differs")


def resumes_bitwise(lift: Lift, task: Task, batch: Batch) -> None:
    """Stop, save, rebuild, load, go on: the same as never having stopped, to the last bit."""
    straight = raised(lift, task, batch)
    optimizer = sgd(straight)
    torch.manual_seed(0)
    descend(straight, batch, optimizer, start=0)
    saved = through_a_file([straight.state_dict(), optimizer.state_dict(), torch.get_rng_state()])
    descend(straight, batch, optimizer, start=STEPS)

    resumed = raised(lift, task, batch)
    resumed.load_state_dict(saved[0])
    optimizer = sgd(resumed)
    optimizer.load_state_dict(saved[1])
    torch.set_rng_state(saved[2])
    descend(resumed, batch, optimizer, start=STEPS)
    assert_same(state_copy(resumed), state_copy(straight), "the resumed run differs")


def comes_back_at_once(lift: Lift, task: Task, batch: Batch) -> None:
    """Projected before any step, a reversible lift gives the task back."""
    if not lift.reversible:
        return
    x, _ = inputs_and_target(batch)
    with torch.no_grad():
        back = lift.project(raised(lift, task, batch), Steps(batch)).eval()
        assert_close(output(back.predict(x)), output(copy.deepcopy(task).eval().predict(x)), "prediction")


def accepts_what_it_lifts(lift: Lift, task: Task, batch: Batch) -> None:
    """``accepts`` gives a reason exactly where ``lift`` raises, and moves no random stream."""
    before = torch.get_rng_state()
    assert lift.accepts(task, Steps(batch)) is None
    assert torch.equal(torch.get_rng_state(), before), "accepts moved the random stream"
    nothing = Task(nn.Identity(), task.loss)
    reason, raised_ = lift.accepts(nothing, Steps(batch)), None
    try:
        lift.lift(nothing, Steps(batch))
    except TorchliftError as error:
        raised_ = str(error)
    assert reason == raised_, f"accepts says {reason}, lift {raised_}"


def keeps_zeros(lift: Lift, task: Task, batch: Batch) -> None:
    """A projection's zeros stay zero under the lift and after it, or the lift raises."""
    pruned, generator = copy.deepcopy(task), torch.Generator().manual_seed(1)
    names = [name for name, p in pruned.named_parameters() if p.ndim > 1 and min(p.shape) > 1]
    with torch.no_grad():
        for name in names:
            store(pruned, name, kept=torch.rand(pruned.get_parameter(name).shape, generator=generator) > 0.5)
    if lift.accepts(pruned, Steps(batch)) is not None:
        return
    with torch.no_grad():
        lifted = raised(lift, pruned, batch)
    small = lift.project(descended(lifted, batch), Steps(batch))
    shapes = {name: mask.shape for name, mask in masks_of(pruned).items()}
    for name, mask in masks_of(pruned).items():
        weight = dict(small.named_parameters(remove_duplicate=False)).get(name)
        if weight is not None and weight.shape == shapes[name]:
            assert bool((weight[~mask] == 0).all()), f"zeros of {name} came back"
            kept = masks_of(small).get(name)
            assert kept is not None, f"the mask of {name} is forgotten"
            assert bool((kept <= mask).all()), f"the mask of {name} has grown"


def records_what_it_projects(lift: Lift, task: Task, batch: Batch) -> None:
    """``stored`` gives the levels, steps and masks that training had, here and in any copy.

    The state dict is that of the plain model, loaded strictly in both directions. What no longer holds is
    dropped with one warning.
    """
    lifted = raised(lift, task, batch)
    descend(lifted, batch)
    problem: Problem = lifted
    for step in reversed(lift.lifts if isinstance(lift, LiftChain) else (lift,)):
        before, problem = problem, step.project(problem, Steps(batch))
        if isinstance(before, Reparametrized):
            assert_recorded(before, problem)
    records = stored(problem)
    for twin in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem)), problem.to("cpu")):
        assert_same_records(stored(twin), records)
    plain = copy.deepcopy(problem)
    forget(plain)
    plain.load_state_dict(problem.state_dict(), strict=True)
    problem.load_state_dict(plain.state_dict(), strict=True)
    assert_same_records(stored(problem), records)
    with torch.no_grad():
        for name in records:
            problem.get_parameter(name).add_(torch.rand_like(problem.get_parameter(name)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        left = [name for name, record in {**stored(problem), **stored(problem)}.items() if breakable(record)]
    assert not left, f"records that do not hold are kept: {left}"
    changed = [str(warning.message) for warning in caught if "changed since" in str(warning.message)]
    assert len(changed) == any(map(breakable, records.values())), f"{len(changed)} warnings, not one"


def breakable(record: Stored) -> bool:
    """Whether a change of the weight breaks its record: not that of a mask without a hole."""
    return record.step is not None or (record.kept is not None and not bool(record.kept.all()))


def assert_recorded(lifted: Reparametrized, small: Problem) -> None:
    """What nodes say of their weights is what is recorded of them."""
    records = stored(small)
    for key, node in lifted.nodes.items():
        assert isinstance(node, Node)
        projection, (name, *_) = node.stored(), lifted.slots[key]
        record, mask = records.get(name, Stored()), getattr(lifted.zeros, key, None)
        if projection.step is not None and projection.levels is not None:
            assert record.levels is not None and record.step is not None, f"{name}: no grid"  # noqa: PT018
            levels = projection.levels if mask is None else projection.levels * mask
            assert torch.equal(record.levels, levels.to(record.levels)), f"the levels of {name} differ"
            assert torch.equal(record.step.flatten(), projection.step.flatten().to(record.step)), (
                f"step of {name}"
            )
        if getattr(lifted.way_back, "prunes", False):
            assert record.kept is not None, f"the mask of {name} is not recorded"
            assert torch.equal(record.kept, small.get_parameter(name) != 0), f"the mask of {name} differs"


def assert_same_records(records: dict[str, Stored], want: dict[str, Stored]) -> None:
    """Equal names, levels, steps and masks."""
    assert records.keys() == want.keys(), f"records of {set(records) ^ set(want)}"
    for name, record in want.items():
        for field in ("levels", "step", "kept"):
            one, other = getattr(records[name], field), getattr(record, field)
            assert (one is None) == (other is None), f"the {field} of {name}"
            assert one is None or torch.equal(one, other), f"the {field} of {name}"


def takes_a_lifted_problem_or_says_why(lift: Lift, task: Task, batch: Batch) -> None:
    """Lifted again, a problem trains and comes back in reverse order; or the second lift raises."""
    first = raised(lift, task, batch)
    try:
        second = lift.lift(first, Steps(batch))
    except TorchliftError:
        return
    descend(second, batch)
    back = lift.project(lift.project(second, Steps(batch)), Steps(batch))
    assert not list(nodes(back)), "traces of the lifts remain"


def reports_the_users_loss(lift: Lift, task: Task, batch: Batch) -> None:
    """With a loss of the user's own, ``task_loss`` is that loss of the network as it is."""
    loss = task.loss

    def own(model: nn.Module, batch: Batch) -> Tensor:
        return 2 * loss(model, batch) + 1

    custom = Task(copy.deepcopy(task.model), own)
    lifted = raised(lift, custom, batch).eval()
    with torch.no_grad():
        if lift.preserving:
            assert_close(lifted.task_loss(batch), own(copy.deepcopy(task.model).eval(), batch), "task loss")
        small = lift.project(descended(lifted, batch), Steps(batch)).eval()
        model = small.body()
        assert model is not None, "the projected problem has no model"
        assert_close(small.task_loss(batch), own(model, batch), "task loss of what is delivered")


def stays_in_double_precision(lift: Lift, task: Task, batch: Batch) -> None:
    """A float64 task stays one: every coordinate, the objective, and what comes back."""
    double, doubled = copy.deepcopy(task).double(), as_double(batch)
    lifted = raised(lift, double, doubled)
    singles = [n for n, p in lifted.named_parameters() if p.is_floating_point() and p.dtype != torch.float64]
    assert not singles, f"not in double precision: {singles}"
    if lift.preserving:
        with torch.no_grad():
            x, _ = inputs_and_target(doubled)
            achieved, want = output(lifted.eval().predict(x)), output(copy.deepcopy(double).eval().predict(x))
            assert_close(achieved, want, "prediction", 1e-12)
    assert lifted.train()(doubled).dtype == torch.float64
    small = projected(lift, double, doubled)
    assert all(p.dtype == torch.float64 for p in small.parameters() if p.is_floating_point())


def holds_each_tensor_once(lift: Lift, task: Task, batch: Batch) -> None:
    """A state dict shares no memory but that of the task's own ties, so that safetensors takes it."""
    lifted = raised(lift, task, batch)
    tied = parameter_count(task) != sum(p.numel() for _, p in task.named_parameters(remove_duplicate=False))
    if not tied:
        loaded = safetensors.torch.load(safetensors.torch.save(lifted.state_dict()))
        assert_same(loaded, state_copy(lifted), "the file differs")


def gradients_are_right(lift: Lift, task: Task, batch: Batch) -> None:
    """Along a random direction, autograd's derivative is the difference quotient's (float64).

    Where a node declares a surrogate gradient, the quotient is the surrogate's.
    """
    batch = as_double(batch)
    lifted = raised(lift, copy.deepcopy(task).double(), batch).eval()
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
    silent = [name for name, g in grads(raised(lift, task, batch), batch).items() if g is None]
    added = [name for name in silent if not any(same_weight(name, other) for other in dead)]
    assert not added, f"no gradient reaches {added}"


def options_reach_what_they_name(lift: Lift, task: Task, batch: Batch) -> None:
    """Optimizer options for ``"*"`` reach the user's weights, in whatever coordinates, and nothing a lift has
    added; that is reached by the globs that name it, and by no other."""
    lifted = raised(lift, task, batch)
    added = lift_coordinates(lifted)
    trainable = {p: name for name, p in lifted.named_parameters() if p.requires_grad}
    reached = [p for group in groups(lifted, {"*": {"mark": 1}}) if "mark" in group for p in group["params"]]
    assert set(map(id, reached)) == {id(p) for p in trainable if p not in added}
    weights = [p for p in task.parameters() if p.requires_grad]
    fewer = sum(p.numel() for p in reached) <= sum(p.numel() for p in weights)
    assert fewer or len(reached) <= len(weights), "the lift declares too few of its coordinates"
    for parameter, name in trainable.items():
        if parameter in added:
            own = [g for g in groups(lifted, {name: {"mark": 1}, "*": {}}) if "mark" in g]
            assert [p is parameter for g in own for p in g["params"]] == [True], f"{name} is not reached"


def exports(lift: Lift, task: Task, batch: Batch) -> None:
    """The projected model goes through ``torch.export`` and answers alike."""
    model = projected(lift, task, batch).body()
    assert model is not None, "the projected problem has no model"
    model.eval()
    x, _ = inputs_and_target(batch)
    args, kwargs = ((), x) if isinstance(x, dict) else ((x,), {})
    program = torch.export.export(model, args, kwargs)
    with torch.no_grad():
        exported, eager = program.module()(*args, **kwargs), model(*args, **kwargs)
    assert_close(output(exported), output(eager), "exported output")


def lands(lift: Lift, task: Task, batch: Batch, bound: float = 1e-5) -> None:
    """At t = 1 the projected loss is within ``bound`` of the lifted one (for lifts that do not learn)."""
    if lift.learns:
        return
    lifted = raised(lift, task, batch)
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
        comes_back_at_once,
        accepts_what_it_lifts,
        keeps_zeros,
        records_what_it_projects,
        takes_a_lifted_problem_or_says_why,
        reports_the_users_loss,
        stays_in_double_precision,
        holds_each_tensor_once,
        gradients_are_right,
        every_coordinate_learns,
        options_reach_what_they_name,
        exports,
    )
}


def check(lift: Lift, task: Task, batch: Batch) -> None:
    """Run a lift through every law of :data:`LAWS`."""
    for law in LAWS.values():
        law(lift, task, batch)
