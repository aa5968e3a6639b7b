"""``tl.fit`` as scikit-learn estimators: any network, any recipe, in pipelines and searches.

FitClassifier(recipe=tl.recipes.ContinuousSparsification(sparsity=0.8)).fit(X, y).predict(X)
"""

import functools
from collections.abc import Callable
from typing import Any, Self

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


class Scaled(nn.Module):
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


class _Fitted(BaseEstimator):
    """A network trained by :func:`torchlift.fit`; the constructor only stores its arguments.

    ``model``: a function ``(inputs, outputs) -> nn.Module``; inputs are standardized before it. ``recipe``,
    ``optimizer``, ``schedule``, ``epochs`` and ``batch_size`` are those of :func:`torchlift.fit`.
    """

    loss_: str

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

    def _learn(self, x: NDArray[np.float32], y: Tensor, outputs: int) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        inputs = torch.from_numpy(x)
        with rng.scope(seed):
            network = Scaled(self.model(x.shape[1], outputs), inputs)
        self.result_ = fit(
            network,
            (inputs, y),
            recipe=self.recipe,
            loss=self.loss_,
            optimizer=self.optimizer,
            schedule=self.schedule,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            progress=False,
        )
        self.model_ = self.result_.model

    @torch.no_grad()
    def _output(self, x: ArrayLike) -> Tensor:
        check_is_fitted(self)
        values = _validate(self, x, dtype=np.float32, reset=False)
        return self.model_(torch.from_numpy(values))


class FitClassifier(ClassifierMixin, _Fitted):
    """A classifier: cross-entropy over the classes seen in ``fit``."""

    loss_ = "cross_entropy"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and labels y."""
        x, labels = _validate(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("FitClassifier needs samples of two classes at least, there is one class.")
        self._learn(x, torch.from_numpy(index), len(self.classes_))
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Probabilities, a column for each of ``classes_``."""
        return self._output(X).softmax(1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each sample."""
        chosen = self._output(X).argmax(1).numpy()
        return self.classes_[chosen]


class FitRegressor(RegressorMixin, _Fitted):
    """A regressor: squared error of the standardized target."""

    loss_ = "mse"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (samples × features) and numbers y."""
        x, target = _validate(self, X, y, dtype=np.float32, y_numeric=True)
        values = torch.as_tensor(np.asarray(target, dtype=np.float32))
        self.center_, self.spread_ = float(values.mean()), float(values.std(correction=0)) or 1.0
        self._learn(x, (values[:, None] - self.center_) / self.spread_, 1)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float32]:
        """The number for each sample."""
        return (self._output(X).squeeze(1) * self.spread_ + self.center_).numpy()
