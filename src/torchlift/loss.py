"""Losses by name: what is minimized, and the number people read."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.errors import DataError

Batch = Any
"""A tuple ``(x, y)``, a dict of tensors, or whatever the user's loss takes."""

Loss = Callable[[nn.Module, Batch], Tensor]
"""``loss(model, batch) -> scalar``."""

TARGETS = ("labels", "label", "targets", "target", "y")


def inputs_and_target(batch: Batch) -> tuple[Any, Tensor]:
    """Inputs and target of a batch: ``(x, y)``, or a dict whose target has one of the usual names."""
    if isinstance(batch, Mapping):
        key = next((k for k in TARGETS if k in batch), None)
        if key is None:
            raise DataError(f"a dict batch needs its target under one of {TARGETS}; it has {list(batch)}.")
        return {k: v for k, v in batch.items() if k != key}, batch[key]
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return batch[0], batch[1]
    raise DataError(f"a batch must be (x, y) or a dict with a target; got {type(batch).__name__}.")


def call(model: nn.Module, x: Any) -> Any:
    """The model at x; a dict is passed as keyword arguments, several inputs one by one."""
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, tuple | list) else model(x)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Evaluation mode for a while; then every module is in its own mode again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def plain_attention() -> Generator[None]:
    """Without torch's fused kernel for whole encoder layers, behind which no operation is seen."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def output(result: Any) -> Tensor:
    """The prediction in what a model returned: a tensor, a result with ``.logits``, or a tuple's first."""
    if isinstance(result, Tensor):
        return result
    if isinstance(result, tuple | list):
        return output(result[0])
    logits = getattr(result, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    raise DataError(f"no prediction in a model output of type {type(result).__name__}; pass a loss callable.")


def score_rows(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Class scores and labels, with sequences (n, t, classes) and (n, t) laid out as rows."""
    if prediction.ndim > 2 and target.shape == prediction.shape[:-1]:
        return prediction.flatten(0, -2), target.flatten()
    return prediction, target


def next_labels(labels: Tensor) -> Tensor:
    """Each position's next label; the last one, which has none, is left out (−100, as the losses know it)."""
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)


def next_token(model: nn.Module) -> bool:
    """Whether a model predicts the next token: one of ``transformers`` that generates from left to right."""
    config, generates = getattr(model, "config", None), getattr(model, "can_generate", None)
    decodes_inputs = getattr(config, "is_encoder_decoder", None) is False
    return decodes_inputs and callable(generates) and bool(generates())


def aligned(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Prediction and target of one shape: (n, 1) and (n,) are the same thing, anything else is an error."""
    if prediction.shape == (*target.shape, 1):
        target = target.unsqueeze(-1)
    elif target.shape == (*prediction.shape, 1):
        target = target.squeeze(-1)
    if prediction.shape != target.shape:
        shapes = f"{tuple(prediction.shape)} and {tuple(target.shape)}"
        raise DataError(f"prediction and target must have one shape, got {shapes}.")
    return prediction, target.to(prediction.dtype)


@dataclasses.dataclass(frozen=True)
class Supervised:
    """loss(model, batch) = criterion(model(x), y), the mean over the batch.

    ``causal``: the model predicts next tokens. Labels of a dict batch, and labels that are the inputs
    themselves, are then those of the positions, as ``transformers`` has it: position t is compared with label
    t + 1. Other pairs (x, y) are taken as they are. ``module``: one of torch's losses in place of the named
    one, such as ``nn.CrossEntropyLoss(label_smoothing=0.1)``; the name then says what kind it is.
    """

    name: Literal["cross_entropy", "mse", "bce"]
    causal: bool = False
    module: nn.Module | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss of the model on the batch."""
        x, y = self.split(batch)
        return self.criterion(output(call(model, x)), y)

    def split(self, batch: Batch) -> tuple[Any, Tensor]:
        """Inputs, and the target of each output."""
        x, y = inputs_and_target(batch)
        shifts = self.causal and (isinstance(batch, Mapping) or (isinstance(x, Tensor) and torch.equal(x, y)))
        return x, next_labels(y) if shifts else y

    def criterion(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of a prediction."""
        if self.module is not None:
            pair = (score_rows if self.name == "cross_entropy" else aligned)(prediction, target)
            return self.module.to(prediction.device)(*pair)
        if self.name == "cross_entropy":
            return functional.cross_entropy(*score_rows(prediction, target))
        if self.name == "mse":
            return functional.mse_loss(*aligned(prediction, target))
        return functional.binary_cross_entropy_with_logits(*aligned(prediction, target))

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The number people read: accuracy, or the mean squared error."""
        if self.name == "mse":
            return functional.mse_loss(*aligned(prediction, target))
        if self.name == "bce":
            prediction, target = aligned(prediction, target)
            return ((prediction > 0) == (target > 0.5)).float().mean()
        prediction, target = score_rows(prediction, target)
        labels = target.argmax(1) if target.is_floating_point() else target
        labeled = labels != -100  # cross_entropy's ignore_index
        return (prediction.argmax(1) == labels)[labeled].float().mean()

    @property
    def metric(self) -> str:
        """The name of :meth:`score`."""
        return "mse" if self.name == "mse" else "accuracy"

    @property
    def higher_is_better(self) -> bool:
        """Which way :meth:`score` is good."""
        return self.name != "mse"

    def check(self, prediction: Tensor, target: Tensor) -> None:
        """Say in one line what is wrong with labels the loss cannot take (all, for a few predictions)."""
        if self.name != "cross_entropy":
            return
        if target.is_floating_point():
            check_probabilities(prediction, target)
            return
        sequence = prediction.ndim > 2 and target.shape[1:] == prediction.shape[1:-1]
        classes = prediction.shape[-1 if sequence else 1] if prediction.ndim > 1 else 1
        if classes < 2:
            raise DataError(ONE_OUTPUT)
        labeled = target[target != -100]
        if target.dtype != torch.int64:
            raise DataError(f"cross_entropy needs int64 labels, got {target.dtype}; use y.long().")
        if labeled.numel() and (int(labeled.min()) < 0 or int(labeled.max()) >= classes):
            span = f"{int(labeled.min())}..{int(labeled.max())}"
            raise DataError(f"labels run over {span}, but the model has {classes} outputs.")


ONE_OUTPUT = "cross_entropy needs an output per class, the model has one: use loss='bce' or loss='mse'."


def check_probabilities(prediction: Tensor, target: Tensor) -> None:
    """Floating-point targets of cross-entropy are distributions over two classes or more."""
    if prediction.ndim < 2 or prediction.shape[1] < 2:
        raise DataError(ONE_OUTPUT)
    sums = target.sum(1) if target.ndim > 1 else target
    if target.ndim < 2 or not bool((target >= 0).all()) or not torch.allclose(sums, sums.new_ones(())):
        raise DataError(
            "cross_entropy takes int64 labels, or rows of probabilities that sum to one; "
            f"got {target.dtype} of shape {tuple(target.shape)}: use y.long(), or loss='mse' for numbers."
        )


@dataclasses.dataclass(frozen=True)
class Own:
    """loss(model, batch) = model(**batch).loss: the one the model computes itself, as ``transformers`` do."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's own loss on the batch."""
        if not isinstance(batch, Mapping):
            kind = type(batch).__name__
            raise DataError(
                f"loss='model' calls model(**batch): the data must be a dict of tensors, not a {kind}."
            )
        loss = getattr(model(**batch), "loss", None)
        if not isinstance(loss, Tensor):
            raise DataError(
                f"{type(model).__name__} returned no loss for {list(batch)}: pass a loss by name."
            )
        return loss


NAMED: dict[str, Literal["cross_entropy", "mse", "bce"]] = {
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "cross_entropy",
    "BCEWithLogitsLoss": "bce",
    "MSELoss": "mse",
    "L1Loss": "mse",
    "SmoothL1Loss": "mse",
    "HuberLoss": "mse",
}
"""Losses of torch.nn that take a prediction and a target, and the named loss whose metric goes with each."""


def from_module(loss: nn.Module, model: nn.Module) -> Supervised:
    """One of torch's losses as ours; raises where it is not a mean over the batch."""
    kind = NAMED.get(type(loss).__name__)
    if kind is None:
        raise DataError(
            f"{type(loss).__name__} is none of {', '.join(NAMED)}: pass loss=lambda model, batch: … instead."
        )
    if getattr(loss, "reduction", "mean") != "mean":
        raise DataError(
            f"{type(loss).__name__} needs reduction='mean': rates and budgets go by the mean loss."
        )
    return Supervised(kind, kind == "cross_entropy" and next_token(model), loss)


def as_loss(loss: Any, model: nn.Module) -> Loss:
    """A loss by name as the model at hand needs it, one of torch's modules, or the user's own function."""
    if type(loss).__module__ == "torch.nn.modules.loss":
        return from_module(loss, model)
    if isinstance(loss, type):
        raise DataError(f"loss takes an instance: loss=nn.{loss.__name__}().")
    if callable(loss):
        return cast(Loss, loss)
    if loss == "model":
        return Own()
    if loss not in ("cross_entropy", "mse", "bce"):
        raise DataError(
            f"loss {loss!r} is not known: 'cross_entropy', 'mse', 'bce', 'model' (its own), a loss of "
            "torch.nn, or loss(model, batch)."
        )
    return Supervised(loss, loss == "cross_entropy" and next_token(model))
