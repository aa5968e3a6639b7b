"""Lifted networks as scikit-learn estimators, on the adapter of :mod:`torchlift.integrations.sklearn`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_random_state
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.integrations.sklearn import Classifier, Estimator, Regressor
from torchlift.methods.lifted.predict import predict
from torchlift.methods.lifted.read import Act
from torchlift.methods.lifted.train import train


class _Lifted(Estimator):
    """An MLP trained by ISGM on standardized inputs; the constructor only stores its arguments."""

    dtype_ = np.float64

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
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = torch.Generator().manual_seed(self.seed_)
        sizes, modules = [inputs, *self.hidden, outputs], list[nn.Module]()
        for below, above in pairwise(sizes):
            layer = nn.Linear(below, above, dtype=torch.float64)
            bound = (6 / (below + above)) ** 0.5
            layer.weight.detach().uniform_(-bound, bound, generator=generator)
            layer.bias.detach().zero_()
            modules += [layer, Act(self.activation)]
        return nn.Sequential(*modules[:-1])

    def _learn(self, x: Tensor, y: Tensor, outputs: int, epochs: float, fresh: bool) -> None:
        if fresh:
            scale, self.mean_ = torch.std_mean(x, 0, correction=0)
            self.scale_ = torch.where(scale > 1e-12 * (self.mean_.abs() + 1e-300), scale, 1.0)
            self.model_ = self._build(x.shape[1], outputs)
        trained = train(
            self.model_,
            ((x - self.mean_) / self.scale_, y),
            method="isgm",
            penalty=self.penalty,
            mu=self.mu,
            loss=self.loss_,
            epochs=int(epochs),
            seed=self.seed_,
            progress=False,
            tau=self.tau,
            rho=self.rho,
            batch_size=self.batch_size,
        )
        self.history_ = trained.history

    def _output(self, x: Tensor) -> Tensor:
        rule: Any = self.rule
        mus = self.mu / 2  # predict's energies are plain squares, the classical penalty is half of one
        return predict(self.model_, (x - self.mean_) / self.scale_, rule, mus=mus, loss=self.loss_)


class LiftedClassifier(Classifier, _Lifted):
    """An MLP classifier trained by lifted Bregman steps (ISGM), with the cross-entropy as output penalty.

    ``rule``: "forward" or "lifted", the prediction rules of ``torchlift.methods.lifted.predict``.
    """

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One more pass; the first call names all classes."""
        fresh = not hasattr(self, "model_")
        if fresh and classes is None:
            raise ValueError("LiftedClassifier.partial_fit: the first call needs classes=")
        x, labels = self._checked(X, y, reset=fresh)
        if fresh:
            self.classes_ = np.unique(np.asarray(classes))
        strangers = np.setdiff1d(labels, self.classes_)
        if len(strangers):
            raise ValueError(
                f"LiftedClassifier.partial_fit: {strangers[0]!r} is none of the classes {self.classes_}"
            )
        index = torch.from_numpy(np.searchsorted(self.classes_, labels))
        self._learn(torch.from_numpy(x), index, max(len(self.classes_), 2), 1, fresh)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class scores; for two classes, one column's margin over the other."""
        scores = self._predicted(X).numpy()
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores


class LiftedRegressor(Regressor, _Lifted):
    """An MLP regressor trained by lifted Bregman steps (ISGM) on standardized targets."""

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """One more pass."""
        return self._fit(X, y, 1, fresh=not hasattr(self, "model_"))
