"""``tl.fit`` as scikit-learn estimators: any network, any recipe, in pipelines and searches.

FitClassifier(recipe=tl.recipes.ContinuousSparsification(sparsity=0.8)).fit(X, y).predict(X)

:class:`Classifier` and :class:`Regressor` are what every estimator of torchlift is made of: a subclass says
how its network learns (``_learn``) and what it gives (``_output``).
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from torchlift.core import Lift
from torchlift.methods.recipe import RecipeLike
from torchlift.train import rng
from torchlift.train.optimizers import OptimizerFactory
from torchlift.train.run import fit

_validate: Any = validate_data  # its annotations only know the "no validation" defaults
ADAMW: OptimizerFactory = functools.partial(torch.optim.AdamW, lr=1e-2, weight_decay=1e-4)


class Estimator(BaseEstimator):
    """A network behind scikit-learn's checks."""

    loss_: ClassVar[str]
    dtype_: ClassVar[Any] = np.float32
    epochs: float

    def _learn(self, x: Tensor, y: Tensor, outputs: int, epochs: float, fresh: bool) -> None:
        """Train a ``fresh`` network, or go on with the one there is."""
        raise NotImplementedError

    def _output(self, x: Tensor) -> Tensor:
        """What the network gives: a column for each class or target."""
        raise NotImplementedError

    def _checked(self, *data: ArrayLike, **how: Any) -> Any:
        return _validate(self, *data, dtype=self.dtype_, **how)

    def _predicted(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return self._output(torch.from_numpy(self._checked(X, reset=False)))


class Classifier(ClassifierMixin, Estimator):
    """Cross-entropy over the classes seen in ``fit``."""

    loss_ = "cross_entropy"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and labels y."""
        x, labels = self._checked(X, y)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes at least, there is one class."
            )
        self._learn(torch.from_numpy(x), torch.from_numpy(index), len(self.classes_), self.epochs, fresh=True)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities, a column for each of ``classes_``."""
        return self._predicted(X).softmax(1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each sample."""
        best = self._predicted(X).argmax(1).numpy()
        return self.classes_[best]


class Regressor(RegressorMixin, Estimator):
    """Squared error of standardized targets, one or several."""

    loss_ = "mse"

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and y (samples, or samples × targets)."""
        return self._fit(X, y, self.epochs, fresh=True)

    def _fit(self, X: ArrayLike, y: ArrayLike, epochs: float, fresh: bool) -> Self:
        x, targets = self._checked(X, y, multi_output=True, y_numeric=True, reset=fresh)
        flat = np.asarray(targets, dtype=self.dtype_)
        columns = flat.reshape(len(flat), -1)
        if fresh:
            self.single_output_ = flat.ndim == 1
            self.target_mean_, scale = columns.mean(0), columns.std(0)
            self.target_scale_ = np.where(scale > 0, scale, 1.0).astype(self.dtype_)
        scaled = torch.from_numpy((columns - self.target_mean_) / self.target_scale_)
        self._learn(torch.from_numpy(x), scaled, columns.shape[1], epochs, fresh)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The targets of each sample, in their units."""
        out = self._predicted(X).double().numpy() * self.target_scale_ + self.target_mean_
        return out[:, 0] if self.single_output_ else out


class ScaledInputs(nn.Module):
    """(x − mean) / scale before a model: what was learnt of the inputs travels with it."""

    mean: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        super().__init__()
        scale, mean = torch.std_mean(x, 0, correction=0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(scale > 1e-6 * (mean.abs() + 1e-30), scale, 1.0))
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The model's output at scaled inputs."""
        return self.model((x - self.mean) / self.scale)


def two_layers(inputs: int, outputs: int) -> nn.Module:
    """The network where none is given: 64 hidden units."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


class _Fitted(Estimator):
    """A network trained by :func:`torchlift.fit`; the constructor only stores its arguments.

    ``model``: a function ``(inputs, outputs) -> nn.Module``; inputs are standardized before it. ``recipe``,
    ``optimizer``, ``schedule``, ``epochs`` and ``batch_size`` are those of :func:`torchlift.fit`.
    """

    def __init__(
        self,
        model: Callable[[int, int], nn.Module] = two_layers,
        recipe: RecipeLike | Lift | None = None,
        optimizer: OptimizerFactory = ADAMW,
        schedule: Any = "cosine",
        epochs: float = 40,
        batch_size: int = 64,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.optimizer = optimizer
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def _learn(self, x: Tensor, y: Tensor, outputs: int, epochs: float, fresh: bool) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with rng.scope(seed):
            network = ScaledInputs(self.model(x.shape[1], outputs), x)
        self.result_ = fit(
            network,
            (x, y),
            recipe=self.recipe,
            loss=self.loss_,
            optimizer=self.optimizer,
            schedule=self.schedule,
            epochs=epochs,
            batch_size=self.batch_size,
            seed=seed,
            progress=False,
        )
        self.model_ = self.result_.model

    @torch.no_grad()
    def _output(self, x: Tensor) -> Tensor:
        return self.model_(x)


class FitClassifier(Classifier, _Fitted):
    """A classifier trained by :func:`torchlift.fit`."""


class FitRegressor(Regressor, _Fitted):
    """A regressor trained by :func:`torchlift.fit`."""
