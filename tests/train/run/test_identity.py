"""Resume raises for what is not the same run, and names the first difference."""

import functools
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torchlift as tl
from torchlift.errors import CheckpointError
from torchlift.train.run.digest import digest
from train.run.runs import data, model, run, same


def changed(change: Callable[[nn.Sequential], object]) -> nn.Module:
    net = model()
    change(net)
    return net


class Scaled(nn.Module):
    def __init__(self, scale: float, activation: Callable[..., Any] = torch.relu) -> None:
        super().__init__()
        self.scale, self.activation, self.layer = scale, activation, nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.activation(self.layer(x))


def scaled(scale: float, **more: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Scaled(scale, **more)


def weighted(weight: object) -> Callable[..., torch.Tensor]:
    return lambda net, batch: float(weight) * nn.functional.cross_entropy(net(batch[0]), batch[1])


FACTOR = 1.0


def global_loss(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return FACTOR * nn.functional.cross_entropy(net(batch[0]), batch[1])


x, y = data()
DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "dropout rate": (
        {},
        {"net": changed(lambda net: setattr(net[1], "p", 0.5))},
        r"model\.modules\.1 .*p=0\.2",
    ),
    "Tanh for Dropout": (
        {},
        {"net": changed(lambda net: net.__setitem__(1, nn.Tanh()))},
        r"model\.modules\.1 .*Tanh",
    ),
    "initial weights": ({}, {"net": model(seed=1)}, r"model\.weights"),
    "one weight": ({}, {"net": changed(lambda net: net[0].bias.data[:1].add_(1e-7))}, r"model\.weights"),
    "frozen weights": ({}, {"net": changed(lambda net: net[0].requires_grad_(False))}, r"model\.frozen"),
    "plain attribute": ({"net": scaled(1.0)}, {"net": scaled(2.0)}, r"model\.modules\.\. .*scale=1\.0"),
    "function attribute": (
        {"net": scaled(1.0, activation=lambda z: z)},
        {"net": scaled(1.0, activation=lambda z: -z)},
        r"model\.modules",
    ),
    "training data": ({}, {"train": (x + (torch.arange(64) == 33)[:, None] * 1e-6, y)}, r"data\.train"),
    "training labels": ({}, {"train": (x, y.roll(1))}, r"data\.train"),
    "validation data": ({}, {"valid": data(seed=2)}, r"data\.valid"),
    "no validation data": ({}, {"valid": None}, r"data\.valid"),
    "loss by name": (
        {"train": (x, y.float()), "valid": None, "net": nn.Linear(4, 1), "loss": "mse"},
        {"train": (x, y.float()), "valid": None, "net": nn.Linear(4, 1), "loss": "bce"},
        r"settings\.loss = 'mse', now it is 'bce'|model\.weights",
    ),
    "closure value": ({"loss": weighted(1)}, {"loss": weighted(2)}, r"settings\.loss\.digest"),
    "closed-over tensor": (
        {"loss": weighted(torch.tensor(1.0))},
        {"loss": weighted(torch.tensor(2.0))},
        r"settings\.loss\.digest",
    ),
    "recipe": ({}, {"recipe": tl.lifts.SoftMask()}, r"recipe\.class = '.*Plain', now it is '.*SoftMask'"),
    "recipe's field": (
        {"recipe": tl.lifts.SoftMask(strength=1e-4)},
        {"recipe": tl.lifts.SoftMask(strength=1e-5)},
        r"recipe\.fields\.strength = 0\.0001, now it is 1e-05",
    ),
    "recipe's function": (
        {"recipe": lambda task, fit: (fit(task, name="a"), task)[1]},
        {"recipe": lambda task, fit: (fit(task, name="b"), task)[1]},
        r"recipe\.fields\.function\.digest",
    ),
    "optimizer": (
        {"optimizer": functools.partial(torch.optim.SGD, lr=0.1)},
        {"optimizer": functools.partial(torch.optim.SGD, lr=0.2)},
        r"settings\.optimizer\.options\.lr = 0\.1, now it is 0\.2",
    ),
    "schedule": ({"schedule": lambda t: 1 - t}, {"schedule": lambda t: 1 + t}, r"settings\.schedule\.digest"),
    "seed": ({}, {"seed": 1}, r"settings\.seed = 0, now it is 1"),
    "compiled": ({}, {"compile": True}, r"settings\.compile = False, now it is True"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_run_raises_by_name(tmp_path: Path, name: str) -> None:
    first, second, words = DIFFERENT[name]
    result = run(tmp_path, **first)
    with pytest.raises(CheckpointError, match=words) as caught:
        run(tmp_path, resume=True, **second)
    assert "\n" not in str(caught.value)
    if name != "loss by name":  # its models are made anew, as users do by mistake
        assert same(run(tmp_path, resume=True, **first).model, result.model)


def test_another_kind_of_device_raises(tmp_path: Path) -> None:
    """Compiled or on another device, the same steps end in other bits."""
    run(tmp_path)
    record = tmp_path / "run.toml"
    record.write_text(record.read_text().replace('device = "cpu"', 'device = "cuda"'))
    with pytest.raises(CheckpointError, match=r"settings\.device = 'cuda', now it is 'cpu'"):
        run(tmp_path, resume=True)


def test_test_data_shape_no_weight_and_are_scored_anew(tmp_path: Path) -> None:
    result = run(tmp_path, test=data(seed=2))
    again = run(tmp_path, test=data(seed=3), resume=True)
    assert same(again.model, result.model)
    assert again.scores["test"] == run(None, test=data(seed=3)).scores["test"] != result.scores["test"]
    assert (
        json.loads((tmp_path / "result.json").read_text())["results"]["test"] == again.scores["test"].metric
    )


def test_code_and_globals_of_a_named_function_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, loss=global_loss)
    run(tmp_path, loss=global_loss, resume=True)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    with pytest.raises(CheckpointError, match=r"settings\.loss\.code"):
        run(tmp_path, loss=global_loss, resume=True)


class Noisy(Dataset):
    def __init__(self, offset: float) -> None:
        self.x, self.y, self.offset = x, y, offset

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index] + self.offset, self.y[index]


def test_another_dataset_behind_a_loader_raises(tmp_path: Path) -> None:
    def loader(offset: float = 0.0, **more: Any) -> DataLoader:
        return DataLoader(Noisy(offset), **({"batch_size": 16} | more))

    run(tmp_path, train=loader())
    run(tmp_path, train=loader(), resume=True)
    for other in (loader(1.0), loader(shuffle=True), loader(batch_size=16, drop_last=True)):
        with pytest.raises(CheckpointError, match=r"data\.train"):
            run(tmp_path, train=other, resume=True)


def constant(value: object) -> Callable[[], object]:
    """A function with this value among the constants of its code."""
    code = (lambda: None).__code__
    return types.FunctionType(code.replace(co_consts=(value,)), globals())


def test_a_digest_is_of_content() -> None:
    cycle: list[object] = [1]
    cycle.append(cycle)
    values = [
        None, 0, 0.0, False, "", b"", (), [], {}, (0,), [0], ((),), {0: 1}, {1: 0}, {0}, cycle,
        torch.zeros(2), torch.zeros(2).int(), torch.zeros(2, 1), torch.zeros(1, 2),
        np.zeros(2), np.zeros(2, int),
        lambda: 0, lambda: 1, lambda a=1: a, lambda a=2: a, functools.partial(max, 1),
        functools.partial(max, 2),
        max, min, nn.Dropout(0.1), nn.Dropout(0.2), torch.float32, torch.float64, Noisy(0.0), Noisy(1.0),
        Noisy(0.0).__getitem__, Noisy(0.0).__len__,
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)
    assert [digest(value) for value in values] == [digest(value) for value in values]
    assert digest(Noisy(0.0)) == digest(Noisy(0.0))
    chain: list[object] = []
    for _ in range(5000):
        chain = [chain]
    assert digest(chain) == digest([chain[0]]), "deeper than any stack, and still a digest"
    assert digest(changed(lambda net: net[2].bias.data[:1].add_(1e-7))) != digest(model()) == digest(model())
    assert digest(constant(frozenset([0, 8]))) == digest(constant(frozenset([8, 0])))
    assert digest(constant(frozenset([0, 8]))) != digest(constant(frozenset([0, 9])))
    assert digest(torch.eye(2).to_sparse()) != digest(2 * torch.eye(2).to_sparse())
    assert digest({"a": torch.arange(6).view(2, 3).T}) == digest(
        {"a": torch.arange(6).view(2, 3).T.contiguous()}
    )
