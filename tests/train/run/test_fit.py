"""tl.fit from the outside: data of every kind, settings, results."""

import copy
import functools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torchlift as tl

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def data(n: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return x, (x.sum(1) > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def quick(problem: nn.Module | None = None, **changes: object) -> tl.Result:
    settings = {"epochs": 3, "batch_size": 32, "progress": False, "optimizer": SGD} | changes
    return tl.fit(
        problem or model(), settings.pop("train", data()), settings.pop("valid", data()), **settings
    )


def test_it_is_the_hand_written_loop() -> None:
    """Same order, same steps: bit for bit what a page of PyTorch would do."""
    steps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def loss(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if net.training:
            steps.append(batch)
        return nn.functional.cross_entropy(net(batch[0]), batch[1])

    trained = quick(loss=loss, valid=None, epochs=3)
    net, (x, _) = model(), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    steps = steps[-12:]
    for inputs, labels in steps:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    for mine, theirs in zip(trained.model.parameters(), net.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    epochs = [torch.cat([inputs for inputs, _ in steps[first : first + 4]]) for first in (0, 4, 8)]
    assert all(torch.equal(epoch.sort(0).values, x.sort(0).values) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])


def test_the_given_model_and_random_streams_are_left_alone() -> None:
    net = model()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    result = quick(net)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert type(result.model) is nn.Sequential


def test_history_cost_and_scores() -> None:
    result = quick(test=data())
    assert [row["epoch"] for row in result.history] == [1, 2, 3]
    assert set(result.history[0]) >= {"phase", "epoch", "train_loss", "valid_loss", "metric", "cost", "lr"}
    assert result.cost == pytest.approx(3.0)
    assert result.metric == "accuracy"
    assert result.scores["test"].metric == pytest.approx(result.history[-1]["metric"])


class Pairs(Dataset):
    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.y[index]


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, features: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.net(features))


@pytest.mark.parametrize(
    "train", [TensorDataset(*data()), Pairs(), DataLoader(Pairs(), batch_size=32, shuffle=True)], ids=type
)
def test_data_of_every_kind(train: object) -> None:
    assert quick(train=train).scores["valid"].metric > 0.6


def test_dict_batches_and_outputs_with_logits() -> None:
    x, y = data()
    result = quick(Named(), train={"features": x, "labels": y}, valid={"features": x, "labels": y})
    assert result.scores["valid"].metric > 0.6


def test_a_loss_of_ones_own() -> None:
    def loss(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (net(batch[0]) ** 2).mean()

    result = quick(loss=loss)
    assert result.metric == "loss"
    assert result.history[-1]["valid_loss"] < 0.1


def test_binary_and_regression_losses() -> None:
    x, y = data()
    net = nn.Sequential(nn.Linear(4, 1))
    assert quick(net, train=(x, y), valid=(x, y), loss="bce").scores["valid"].metric > 0.7
    target = x.sum(1)
    assert quick(net, train=(x, target), valid=(x, target), loss="mse", epochs=20).scores["valid"].loss < 0.05


def test_schedules_clipping_and_groups_reach_the_optimizer() -> None:
    rates = [row["lr"] for row in quick(schedule="cosine").history]
    assert rates[0] > rates[1] > rates[2] == pytest.approx(0.0, abs=1e-9)
    halved = quick(schedule=lambda t: 0.5, groups={"0.*": {"lr": 0.0}, "*": {}})
    first = copy.deepcopy(model())[0]
    assert torch.equal(halved.model[0].weight, first.weight)
    assert not torch.equal(quick(clip=1e-3).model[0].weight, quick().model[0].weight)


def test_keep_best_returns_the_best_epoch() -> None:
    result = quick(keep="best", epochs=6, optimizer=functools.partial(torch.optim.SGD, lr=2.0))
    assert result.scores["valid"].metric == max(row["metric"] for row in result.history)


def test_augmentation_depends_on_the_seed_alone() -> None:
    def shift(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + 0.1 * torch.randn(x.shape, generator=generator)

    one, two, other = quick(augment=shift), quick(augment=shift), quick(augment=shift, seed=1)
    assert torch.equal(one.model[0].weight, two.model[0].weight)
    assert not torch.equal(one.model[0].weight, other.model[0].weight)


def test_a_single_lift_is_a_recipe() -> None:
    result = quick(recipe=tl.lifts.SoftMask(strength=0.0, variant="published"))
    assert type(result.model) is nn.Sequential
    assert {"gap", "projected_metric"} <= set(result.history[0])


def test_pruned_stays_pruned_under_any_optimizer() -> None:
    net = model()
    with torch.no_grad():
        net[0].weight[::2] = 0.0
    holes = net[0].weight == 0
    for optimizer in (SGD, functools.partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5)):
        result = quick(net, optimizer=optimizer)
        assert torch.equal(result.model[0].weight == 0, holes)
    assert not torch.equal(quick(net, keep_zeros=False).model[0].weight == 0, holes)


def test_the_run_folder_tells_all(tmp_path: Path) -> None:
    result = quick(out=tmp_path)
    assert "seed = 0" in (tmp_path / "run.toml").read_text()
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [{name: row[name] for name in row if name != "crc"} for row in rows] == result.history
    assert json.loads((tmp_path / "result.json").read_text())["after"]["params"] == 114
    page = result.report(tmp_path / "report.html").read_text()
    assert "accuracy" in page
    again = tl.deploy.load(result.save(tmp_path / "small.tl"))
    x, _ = data()
    torch.testing.assert_close(again(x), result.model(x))


def test_mixed_precision_goes_through_fabric() -> None:
    result = quick(precision="bf16-mixed", recipe=tl.lifts.SoftMask(strength=0.0, variant="published"))
    assert result.model[0].weight.dtype == torch.float32
    assert result.scores["valid"].metric > 0.6


def test_tensorboard_rows_are_written(tmp_path: Path) -> None:
    quick(out=tmp_path, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_stationary_ends_a_fit_at_a_stationary_point() -> None:
    x, _ = data()
    rows: list[str] = []

    def recipe(task: tl.Task, fit: object) -> tl.Task:
        rows.append(fit(task, until=tl.until.Stationary(0.05, cap=400)).stopped)
        return task

    quick(nn.Sequential(nn.Linear(4, 1)), train=(x, x.sum(1)), valid=None, loss="mse", recipe=recipe)
    assert rows == ["rule"]


def test_remembered_weights_and_carried_momentum() -> None:
    seen: dict[str, object] = {}

    def recipe(task: tl.Task, fit: object) -> tl.Task:
        start = copy.deepcopy(task.state_dict())
        first = fit(task, name="first", epochs=3, remember=(1, 2))
        seen["epochs"] = sorted(first.remembered)
        seen["moved"] = not torch.equal(first.remembered[1]["model.0.weight"], start["model.0.weight"])
        fit(task, name="second", epochs=1, warm=first)
        return task

    quick(recipe=recipe)
    assert seen == {"epochs": [1, 2], "moved": True}
