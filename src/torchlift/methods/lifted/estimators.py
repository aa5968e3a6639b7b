"""Lifted networks as scikit-learn estimators."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.methods.lifted.predict import predict
from torchlift.methods.lifted.read import Act
from torchlift.methods.lifted.train import train

_validate: Any = validate_data  # its annotations only know the "no validation" defaults


class _Lifted(BaseEstimator):
    """An MLP trained by ISGM on standardized inputs; the constructor only stores its arguments."""

    loss_: str

    def __init__(
        self,
        hidden: Sequence[int] = (100,),
        activation: str | Activation = "relu",
        penalty: str = "bregman",
        mu: float = 1.0,
        tau: float = 2.0,
        epochs: int = 30,
        batch_size: int = 200,
        rho: float = 1e-4,
        rule: str = "forward",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.penalty = penalty
        self.mu = mu
        self.tau = tau
        self.epochs = epochs
        self.batch_size = batch_size
        self.rho = rho
        self.rule = rule
        self.random_state = random_state

    def _build(self, inputs: int, outputs: int) -> nn.Sequential:
        rng = check_random_state(self.random_state)
        self.seed_ = int(rng.randint(2**31 - 1))
        generator = torch.Generator().manual_seed(self.seed_)
        sizes, modules = [inputs, *self.hidden, outputs], list[nn.Module]()
        for below, above in pairwise(sizes):
            layer = nn.Linear(below, above, dtype=torch.float64)
            bound = (6 / (below + above)) ** 0.5
            layer.weight.detach().uniform_(-bound, bound, generator=generator)
            layer.bias.detach().zero_()
            modules += [layer, Act(self.activation)]
        return nn.Sequential(*modules[:-1])

    def _standardized(self, x: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy((x - self.mean_) / self.scale_)

    def _learn(self, x: NDArray[np.float64], y: Tensor, outputs: int, epochs: int, fresh: bool) -> None:
        if fresh:
            self.mean_ = x.mean(0)
            scale = x.std(0)
            self.scale_ = np.where(scale > 1e-12 * (np.abs(self.mean_) + 1e-300), scale, 1.0)
            self.model_ = self._build(x.shape[1], outputs)
        result = train(
            self.model_,
            (self._standardized(x), y),
            method="isgm",
            penalty=self.penalty,
            mu=self.mu,
            loss=self.loss_,
            epochs=epochs,
            seed=self.seed_,
            progress=False,
            tau=self.tau,
            rho=self.rho,
            batch_size=self.batch_size,
        )
        self.history_ = result.history

    def _output(self, x: ArrayLike) -> Tensor:
        check_is_fitted(self)
        values = _validate(self, x, dtype=np.float64, reset=False)
        rule: Any = self.rule
        mus = self.mu / 2  # predict's energies are plain squares, the classical penalty is half of one
        return predict(self.model_, self._standardized(values), rule, mus=mus, loss=self.loss_)


class LiftedClassifier(ClassifierMixin, _Lifted):
    """An MLP classifier trained by lifted Bregman steps (ISGM), with the cross-entropy as output penalty.

    ``rule``: "forward" or "lifted", the prediction rules of ``torchlift.methods.lifted.predict``.
    """

    loss_ = "cross_entropy"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and labels y."""
        x, labels = _validate(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        self._learn(x, torch.from_numpy(index), max(len(self.classes_), 2), self.epochs, fresh=True)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One more pass; the first call names all classes."""
        fresh = not hasattr(self, "model_")
        if fresh and classes is None:
            raise ValueError("LiftedClassifier.partial_fit: the first call needs classes=")
        x, labels = _validate(self, X, y, dtype=np.float64, reset=fresh)
        if fresh:
            self.classes_ = np.unique(np.asarray(classes))
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(
                f"LiftedClassifier.partial_fit: {unknown[0]!r} is none of the classes {self.classes_}"
            )
        index = torch.from_numpy(np.searchsorted(self.classes_, labels))
        self._learn(x, index, max(len(self.classes_), 2), 1, fresh=fresh)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class scores; for two classes, one column's margin over the other."""
        scores = self._output(X).numpy()
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores[:, : len(self.classes_)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The softmax of the scores."""
        scores = self._output(X)
        return torch.softmax(scores[:, : len(self.classes_)], 1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self._output(X)
        return self.classes_[scores[:, : len(self.classes_)].argmax(1).numpy()]


class LiftedRegressor(RegressorMixin, _Lifted):
    """An MLP regressor trained by lifted Bregman steps (ISGM) on standardized targets."""

    loss_ = "mse"

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and y (samples, or samples × outputs)."""
        return self._fit(X, y, self.epochs, fresh=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """One more pass."""
        return self._fit(X, y, 1, fresh=not hasattr(self, "model_"))

    def _fit(self, X: ArrayLike, y: ArrayLike, epochs: int, fresh: bool) -> Self:
        x, targets = _validate(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=fresh)
        flat = np.asarray(targets, dtype=np.float64)
        columns = flat.reshape(len(flat), -1)
        if fresh:
            self.single_output_ = flat.ndim == 1
            self.target_mean_ = columns.mean(0)
            scale = columns.std(0)
            self.target_scale_ = np.where(scale > 0, scale, 1.0)
        y_scaled = torch.from_numpy((columns - self.target_mean_) / self.target_scale_)
        self._learn(x, y_scaled, columns.shape[1], epochs, fresh)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The network's output in the targets' units."""
        out = self._output(X).numpy() * self.target_scale_ + self.target_mean_
        return out[:, 0] if self.single_output_ else out
