"""What people bring to ``fit``: their metrics, inputs, schedulers, streams, callbacks, teachers."""

import functools
import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, IterableDataset, StackDataset, TensorDataset

import torchlift as tl
from torchlift.errors import TorchliftError
from torchlift.train import Callback

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(64, 4, generator=GENERATOR)
Y = (X[:, 0] + X[:, 1] > 0).long()
SGD = functools.partial(torch.optim.SGD, lr=0.1)


def net(outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def fit(model: nn.Module | None = None, train: object = (X, Y), valid: object = (X, Y), **settings: object):
    options = {"optimizer": SGD, "epochs": 3, "batch_size": 16, "progress": False}
    return tl.fit(net() if model is None else model, train, valid, **options | settings)


def same(a: tl.Result, b: tl.Result) -> bool:
    pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
    return all(torch.allclose(p, q, atol=1e-6) for p, q in pairs)


def test_metrics_of_predictions_and_targets():
    def hits(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert len(predictions) == 64  # all samples at once
        return (predictions.argmax(1) == targets).float().mean()

    mine, own = fit(metric=hits), fit()
    assert mine.scores["valid"].metric == pytest.approx(own.scores["valid"].metric)
    assert [row["metric"] for row in mine.history] == pytest.approx([row["metric"] for row in own.history])


def test_metrics_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    result = fit(
        metric=metrics.accuracy_score, metrics={"f1": metrics.f1_score, "auc": metrics.roc_auc_score}
    )
    assert result.scores["valid"].metric == pytest.approx(fit().scores["valid"].metric)
    predicted = result.model(X).argmax(1)
    assert result.history[-1]["f1"] == pytest.approx(metrics.f1_score(Y, predicted))
    assert 0.5 < result.history[-1]["auc"] <= 1.0
    beta = functools.partial(metrics.fbeta_score, beta=2.0)
    assert fit(metric=beta).history[-1]["metric"] == pytest.approx(
        metrics.fbeta_score(Y, predicted, beta=2.0)
    )
    worse = fit(net(1), (X, X[:, :1]), (X, X[:, :1]), loss="mse", metric=metrics.mean_squared_error)
    assert not worse.scores["valid"].higher_is_better


def test_metrics_with_update_and_compute():
    class Hits:
        """As torchmetrics' objects are."""

        higher_is_better = True

        def reset(self):
            self.hits = self.total = 0

        def update(self, predictions, targets):
            self.hits += int((predictions.argmax(1) == targets).sum())
            self.total += len(targets)

        def compute(self):
            return torch.tensor(self.hits / self.total)

        def __call__(self, predictions, targets):
            raise AssertionError("the parts are used")

    assert fit(metric=Hits()).scores["valid"].metric == pytest.approx(fit().scores["valid"].metric)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.left(a) + self.right(b)


@pytest.mark.parametrize("recipe", [None, tl.lifts.SoftMask(s_init=0.1)])
def test_several_inputs(recipe):
    data = ((X, X[:, :2]), Y)
    result = fit(Two(), data, data, recipe=recipe)
    assert result.scores["valid"].metric > 0.5
    rows = StackDataset(StackDataset(X, X[:, :2]), Y)
    assert fit(Two(), rows, data).history[-1]["train_loss"] < math.inf


def test_schedulers_of_torch_step_after_every_step():
    result = fit(schedule=functools.partial(OneCycleLR, max_lr=0.4), epochs=8, batch_size=64)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler = OneCycleLR(optimizer, max_lr=0.4, total_steps=8, cycle_momentum=False)
    want = []
    for _ in range(8):
        want.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert [row["lr"] for row in result.history] == pytest.approx(want)
    halved = fit(schedule=functools.partial(StepLR, step_size=2, gamma=0.5), epochs=4, batch_size=64)
    assert [row["lr"] for row in halved.history] == pytest.approx([0.1, 0.1, 0.05, 0.05])
    assert fit(schedule=CosineAnnealingLR, epochs=4, batch_size=64).history[-1]["lr"] < 0.02
    with pytest.raises(TorchliftError, match="patience="):
        fit(schedule=ReduceLROnPlateau)
    with pytest.raises(TorchliftError, match="takes a factory"):
        fit(schedule=scheduler)
    with pytest.raises(TorchliftError, match=r"OneCycleLR: missing a required argument: 'max_lr'.*partial\("):
        fit(schedule=OneCycleLR)
    with pytest.raises(TorchliftError, match=r"partial\(OneCycleLR, max_lr=0.1\)"):
        fit(schedule=lambda optimizer: CosineAnnealingLR(optimizer, 4))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def test_a_stream_without_a_length(tmp_path):
    straight = fit(train=Stream())
    assert straight.history[-1]["step"] == 12
    assert same(straight, fit(train=DataLoader(Stream(), 16)))
    assert same(straight, fit(train=DataLoader(TensorDataset(X, Y), 16)))
    fit(train=Stream(), out=tmp_path)
    assert same(fit(train=Stream(), out=tmp_path, resume=True), straight)


@pytest.mark.parametrize("recipe", [None, tl.lifts.SoftMask(s_init=0.1, strength=1e-2)])
def test_gradients_of_several_batches_are_those_of_one(recipe):
    """Penalties count once a step, and a short last batch by its samples."""
    whole = fit(train=DataLoader(TensorDataset(X, Y), 24), recipe=recipe)
    parts = fit(train=DataLoader(TensorDataset(X, Y), 8), recipe=recipe, accumulate=3)
    assert parts.history[-1]["step"] == whole.history[-1]["step"] == 9
    assert same(whole, parts)
    assert parts.cost == pytest.approx(whole.cost, rel=0.05)


def test_callbacks_are_told_rows_and_the_end(tmp_path):
    class Noted(Callback):
        rows, end = [], None

        def on_row(self, row):
            self.rows.append(row)

        def on_end(self, result):
            Noted.end = result

    seen: list[int] = []
    noted = Noted()
    result = fit(callbacks=[noted, lambda row: seen.append(row["epoch"])])
    assert seen == [1, 2, 3]
    assert noted.end is result
    assert [row["epoch"] for row in noted.rows] == seen
    with pytest.raises(TorchliftError, match="a callback is"):
        fit(callbacks=[Noted])


def test_patience_ends_a_fit_that_no_longer_improves():
    still = functools.partial(torch.optim.SGD, lr=0.0)
    assert len(fit(optimizer=still, patience=2, epochs=20).history) == 3
    annealed = fit(optimizer=still, patience=2, epochs=6, recipe=tl.lifts.SoftMask(s_init=0.1))
    assert len(annealed.history) == 6  # it has to reach t = 1
    with pytest.raises(TorchliftError, match="patience is a whole number"):
        fit(patience=0)


@pytest.mark.parametrize("recipe", [None, tl.lifts.SoftMask(s_init=0.1)])
def test_a_teacher_beside_the_task(recipe):
    """Labels are noise; the teacher knows better, and the student follows it."""
    teacher = fit(epochs=30).model
    noise = torch.randint(2, (64,), generator=torch.Generator().manual_seed(1))
    alone, taught = (fit(train=(X, noise), epochs=20, recipe=recipe, teacher=t) for t in (None, teacher))
    assert taught.scores["valid"].metric > alone.scores["valid"].metric + 0.1
    with pytest.raises(TorchliftError, match="a trained nn"):
        fit(teacher="bert")
    with pytest.raises(TorchliftError, match="different shapes"):
        fit(teacher=net(3))


def test_a_run_with_another_teacher_is_another_run(tmp_path):
    fit(teacher=net(), out=tmp_path)
    fit(teacher=net(), out=tmp_path, resume=True)
    other = nn.Sequential(nn.Linear(4, 2))
    with pytest.raises(TorchliftError, match="teacher"):
        fit(teacher=other, out=tmp_path, resume=True)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")
@pytest.mark.parametrize(("cuda", "best"), [(False, "mps"), (True, "cuda")])
def test_a_gpu_of_either_kind_is_taken_where_there_is_one(monkeypatch, cuda, best):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(TorchliftError, match=f"device '{best}' cannot be used"):
        tl.fit(nn.Linear(4, 2), (X, Y), progress=False)
