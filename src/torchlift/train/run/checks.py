"""Validate the arguments of a run: one line on what is wrong, before anything is written."""

import contextlib
import copy
import inspect
import math
import warnings
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from torchlift.core import Batch, Fit, Lift, Problem, Supervised, Task, WeightLift, named, nodes
from torchlift.core.node import Coordinate, lift_coordinates
from torchlift.core.selection import Groups, check_globs, reaches
from torchlift.core.weights import weights_in_place
from torchlift.errors import DataError, SelectionError, TorchliftError
from torchlift.loss import evaluating, inputs_and_target, output
from torchlift.methods.recipe import Recipe
from torchlift.train import rng
from torchlift.train.batches import Accumulated, Source, Tensors, example, source
from torchlift.train.optimizers import OptimizerFactory, unbound
from torchlift.train.settings import Settings
from torchlift.tree import each, leaves, move


class DryRun(Fit):
    """A fit for asking ``accepts``: it shows data and trains nothing."""

    epochs = 1.0
    settings = Settings()

    def __init__(self, train: Any, batch_size: int) -> None:
        self.train = source(train, batch_size)
        self.steps = self.train.steps()

    def __call__(self, problem: Problem, **settings: Any) -> Any:
        """Nothing."""

    def evaluate(self, problem: Problem) -> Any:
        """Nothing."""

    def batches(self) -> Iterator[Batch]:
        """The training data, in order; no random stream moves."""
        state = self.train.state()
        with rng.scope():
            yield from self.train.ordered()
        self.train.restore(state)

    def example(self) -> Batch:
        """A batch of the size that steps take."""
        return example(self.train)


def few_samples(data: Source, device: torch.device) -> Batch:
    """The first batch; no random stream moves."""
    state = data.state()
    with rng.scope():
        batch = move(next(iter(data.ordered())), device)
    data.restore(state)
    return batch


def predicted(task: Task, x: Any) -> torch.Tensor:
    """The output, or one line on why there is none."""
    try:
        return output(task.predict(x))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = wrong_type(task.model, x, str(error)) or str(error).splitlines()[0]
        if isinstance(x, Mapping) and "unexpected keyword" in reason:
            reason += ": columns go to forward by their names; rename them, or pass (x, y)."
        raise DataError(f"the model does not take inputs of shape {shapes(x)}: {reason}") from error


def check_held_out(task: Task, sources: Mapping[str, Source | None], device: torch.device) -> None:
    """Try the model on two samples of the other data."""
    for name, data in sources.items():
        if data is None or not isinstance(task.loss, Supervised):
            continue
        x, _ = task.loss.split(few_samples(data, device))
        try:
            with rng.scope(), evaluating(task), torch.no_grad():
                predicted(task, first_inputs(x, 2))
        except DataError as error:
            raise DataError(f"{name}: {error}") from error


def check_run(task: Task, train: Source, device: torch.device, **others: Source | None) -> Any:
    """Try the model on two samples and look at all labels; the samples' inputs, as an example.

    ``others``: more data to try it on, by name.
    """
    example = check_training(task, train, device)
    check_held_out(task, others, device)
    return example


def check_training(task: Task, train: Source, device: torch.device) -> Any:
    """Try the model on two samples and look at all labels; the samples' inputs."""
    if not any(p.requires_grad for p in task.parameters()):
        raise DataError("the model has no parameter to train: unfreeze some with p.requires_grad_(True).")
    batch = few_samples(train, device)
    if not isinstance(task.loss, Supervised):
        return batch[0] if isinstance(batch, tuple | list) else batch
    x, y = task.loss.split(batch)
    x, few = first_inputs(x, 2), y[:2]
    with rng.scope(), evaluating(task), torch.no_grad():
        prediction = predicted(task, x)
        inner = train.inner if isinstance(train, Accumulated) else train
        labels = inputs_and_target(inner.tree)[1] if isinstance(inner, Tensors) else y
        check_labels(task.loss, prediction, labels)
        try:
            value = task.loss.criterion(prediction, few)
        except RuntimeError as error:
            both = f"{tuple(prediction.shape)} and {tuple(few.shape)}"
            message = str(error).splitlines()[0]
            advice = ": use y.squeeze(1)" if few.shape == (len(few), 1) else ""
            raise DataError(f"prediction and target do not fit ({both}): {message}{advice}.") from error
        if isinstance(batch, Mapping) and "labels" in batch and task.loss.module is None:
            check_own_loss(task.model, first_inputs(batch, 2), float(value))
    return first_inputs(x, 1)


def wrong_type(model: nn.Module, x: Any, message: str = "") -> str | None:
    """What to do about inputs of another number type than the model's, if that is what is wrong."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    for tensor in leaves(x):
        likely = tensor.is_floating_point() or tensor.ndim > 2 or "dtype" in message
        if weight is not None and tensor.dtype != weight.dtype and likely:
            kind = weight.dtype
            return f"they are {tensor.dtype}, its weights {kind}: convert them with x.to({kind})."
    return None


def check_own_loss(model: nn.Module, batch: Mapping[str, Any], value: float) -> None:
    """A model that has a loss of its own for these labels must agree with the one it is trained by."""
    if "labels" not in inspect.signature(model.forward).parameters:
        return
    own = getattr(model(**batch), "loss", None)
    if isinstance(own, torch.Tensor) and not math.isclose(float(own), value, rel_tol=1e-2, abs_tol=1e-4):
        raise DataError(
            f"cross_entropy of the model's output and these labels is {value:.4g}, the model's own loss "
            f"{float(own):.4g}: pass loss='model' to train by its own."
        )


def check_labels(loss: Supervised, prediction: torch.Tensor, labels: torch.Tensor) -> None:
    """Labels the loss can take, of more than one class."""
    if prediction.ndim <= 2 or labels.ndim == prediction.ndim - 1:
        loss.check(prediction, labels)
    if loss.name == "cross_entropy" and not labels.is_floating_point() and len(labels) > 1:
        classes = labels.unique()
        if len(classes) == 1:
            raise DataError(f"all labels are class {int(classes[0])}: there is nothing to learn; check y.")


def first_inputs(x: Any, n: int) -> Any:
    """The first samples of the inputs."""
    return each(lambda tensor: tensor[:n], x)


def shapes(x: Any) -> str:
    """The inputs' shapes, in words."""
    if isinstance(x, dict):
        return ", ".join(f"{name} {tuple(tensor.shape[1:])}" for name, tensor in x.items())
    return " and ".join(str(tuple(tensor.shape[1:])) for tensor in leaves(x))


@contextlib.contextmanager
def one_line_steps() -> Generator[None]:
    """What torch says of a first step that cannot be, in one line that names the fix."""
    try:
        yield
    except TypeError as error:
        if "must be Tensor, not" not in str(error):
            raise
        raise DataError(
            "loss is called as loss(model, batch); for a function of prediction and target pass "
            "loss=lambda model, batch: function(model(batch[0]), batch[1])."
        ) from error
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            "batch normalization cannot train on one sample: raise batch_size, or give more samples."
        ) from error


def check_accepted(recipe: Recipe, task: Task, data: Source, seed: int) -> None:
    """Ask the recipe whether it is for this task, before anything is written or trained."""
    with rng.scope(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of, it warns of again when it runs
        try:
            reason = recipe.accepts(copy.deepcopy(task), DryRun(data, 1))
        except TorchliftError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if reason is not None:
        raise SelectionError(f"{recipe.name} is not for this model: {reason}")
    check_later_lifts(list(recipe.lifts() or ()), task, data, seed)


def check_later_lifts(lifts: list[Lift], task: Task, data: Source, seed: int) -> None:
    """Try a step with the weights that later stages lift; the first stage tries its own in time."""
    for lift in (lift for lift in lifts[1:] if isinstance(lift, WeightLift)):
        with rng.scope(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                lifted = lift.lift(copy.deepcopy(task), DryRun(data, 1))
            except TorchliftError:
                continue  # it is for what the stages before it leave
            with weights_in_place():
                lifted.train()(few_samples(data, next(task.parameters()).device)).backward()


def check_groups(
    recipe: Recipe, task: Task, data: Source, seed: int, groups: Groups, optimizer: OptimizerFactory
) -> None:
    """Globs of the user's options that no fit of the recipe has a parameter for are errors, before any; so
    are options of the weights that their optimizer does not have: torch would keep and never read them."""
    coordinates, lifts = list(parameter_names(task)), recipe.lifts()
    for glob, options in groups.items():
        if any(reaches(glob, name, coordinate) for name, coordinate in coordinates):
            check_option_names(glob, options, options.get("optimizer", optimizer))
    if lifts is None:
        return  # a function: what its fits did not have is said at the end
    with rng.scope(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for lift in lifts:
            with contextlib.suppress(TorchliftError):  # the lift of a later stage, perhaps
                coordinates += parameter_names(lift.lift(copy.deepcopy(task), DryRun(data, 1)))
    check_globs(groups, coordinates)


def check_option_names(glob: str, options: Mapping[str, Any], factory: OptimizerFactory) -> None:
    """An error for an option that an optimizer of torch's or ours does not know; of others nobody knows."""
    kind = unbound(factory)
    if not inspect.isclass(kind) or kind.__module__.partition(".")[0] not in ("torch", "torchlift"):
        return
    try:
        optimizer = factory([nn.Parameter(torch.zeros(1, 1))])
    except (TypeError, ValueError):
        return  # what is wrong with it is said when it is needed
    allowed = {"optimizer", "lr_factor", *optimizer.defaults}
    for name in options:
        if name not in allowed:
            others = ", ".join(sorted(allowed))
            raise SelectionError(
                f"groups: {kind.__name__} has no option {name!r} (for {glob!r}); there are {others}."
            )


def parameter_names(problem: Problem) -> Iterator[tuple[str, Coordinate | None]]:
    """The trainable parameters by name, and whether a lift has added them."""
    added = lift_coordinates(problem)
    return ((name, added.get(p)) for name, p in named(problem).items() if p.requires_grad)


def as_task(problem: nn.Module, loss: Any) -> Task:
    """The user's problem: a task as it is, or a model with a loss."""
    lifted = isinstance(problem, Problem) and not isinstance(problem, Task)
    if lifted or (isinstance(problem, nn.Module) and next(nodes(problem), None) is not None):
        raise DataError(
            "fit takes a plain model or Task, this one is lifted: project it, or pass recipe=lift."
        )
    if isinstance(problem, Task):
        return problem
    if not isinstance(problem, nn.Module):
        raise DataError(f"fit takes an nn.Module or a Task, got a {type(problem).__name__}.")
    return Task(problem, loss)
