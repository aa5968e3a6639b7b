"""A run is resumed only by what made it: whatever else has changed, in whatever way, raises."""

import functools
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, WeightedRandomSampler

import torchlift as tl
from torchlift.errors import CheckpointError

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(64, 4, generator=GENERATOR), torch.randint(0, 3, (64,), generator=GENERATOR)
CONFIG, SPACE = {"scale": 1.0}, types.SimpleNamespace(scale=1.0)


class Config:
    scale = 1.0
    weights = torch.ones(3)


class Net(nn.Module):
    def __init__(self, constant: float = 1.0, private: float = 1.0, more: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 3)
        self.register_buffer("constant", torch.full((3,), constant), persistent=False)
        self._private, self.more, self.extra, self.options = private, list(more), None, {"mode": "a"}

    def helper(self, z: Tensor) -> Tensor:
        return z * self.constant

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(self.linear(x)) * self._private * self.more[0]


class Private(Dataset):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self._x[i], self._y[i]


class Public(Dataset):
    scale = 1.0

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def read(self, i: int) -> Tensor:
        return self.x[i]

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.read(i) * type(self).scale, self.y[i]


class Hidden(Dataset):
    """What it holds is out of sight: in a closure of slots."""

    __slots__ = ("rows",)

    def __init__(self, y: Tensor) -> None:
        self.rows = list(zip(X, y, strict=True))

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.rows[i]


class Step(torch.optim.SGD):
    factor = 1.0

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_(self.factor)
        return super().step(closure)


def loss_of(scale: Callable[[], Any]) -> Callable[[nn.Module, Any], Tensor]:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return ((model(batch[0]) * scale()) ** 2).mean()

    return loss


def of_dict(model: nn.Module, batch: Any) -> Tensor:
    return ((model(batch[0]) * CONFIG["scale"]) ** 2).mean()


def of_class(model: nn.Module, batch: Any) -> Tensor:
    return ((model(batch[0]) * Config.scale) ** 2).mean()


def of_space(model: nn.Module, batch: Any) -> Tensor:
    return ((model(batch[0]) * SPACE.scale) ** 2).mean()


def of_tensor(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], weight=Config.weights)


def fit(out: Path, model: nn.Module, data: Any = (X, Y), resume: bool = False, **settings: Any) -> tl.Result:
    options = {"optimizer": functools.partial(torch.optim.SGD, lr=0.1), "epochs": 1, "progress": False}
    return tl.fit(model, data, out=out, resume=resume, **options | settings)


Start = Callable[[], tuple[Any, ...]]
"""A model, data and settings; what it changes by monkeypatch stays changed."""


def net(**options: Any) -> Start:
    return lambda patch: (Net(**options), (X, Y), {})


def inputs(data: Any = (X, Y), **settings: Any) -> Start:
    return lambda patch: (Net(), data() if callable(data) else data, settings)


def patched(target: Any, name: str, value: Any, start: Start) -> Start:
    def run(patch: pytest.MonkeyPatch) -> tuple[Any, ...]:
        patch.setattr(target, name, value)
        return start(patch)

    return run


def changed(change: Callable[[Net], Any]) -> Start:
    def run(patch: pytest.MonkeyPatch) -> tuple[Any, ...]:
        model = Net()
        change(model)
        return model, (X, Y), {}

    return run


def loader(**options: Any) -> Callable[[], DataLoader]:
    return lambda: DataLoader(TensorDataset(X, Y), **{"batch_size": 16} | options)


def weighted(weights: Tensor) -> Callable[[], DataLoader]:
    return loader(sampler=WeightedRandomSampler(weights, 64))


def doubled(samples: list[Any]) -> Any:
    x, y = zip(*samples, strict=True)
    return 2 * torch.stack(x), torch.stack(y)


LATE = torch.cat([Y[:40], Y[40:].flip(0)])
PRIVATE, PUBLIC = functools.partial(Private, X, Y), functools.partial(Public, X, Y)
SGD = functools.partial(torch.optim.SGD, lr=0.1)
CHANGES: dict[str, tuple[Start, Start]] = {
    "a buffer outside the state dict": (net(), net(constant=-1.0)),
    "a private number of the model": (net(), net(private=-1.0)),
    "a list of the model": (net(), net(more=(-1.0,))),
    "a dict of the model": (net(), changed(lambda m: m.options.update(mode="b"))),
    "a plain tensor of the model": (net(), changed(lambda m: setattr(m, "extra", torch.ones(3)))),
    "a method of the model": (net(), patched(Net, "helper", lambda self, z: -z * self.constant, net())),
    "a hook": (net(), changed(lambda m: m.linear.register_forward_hook(lambda mod, args, out: -out))),
    "private samples": (inputs(PRIVATE), inputs(lambda: Private(-X, Y.flip(0)))),
    "private labels behind the first batch": (
        inputs(PRIVATE),
        inputs(lambda: Private(X, LATE)),
    ),
    "public samples": (inputs(PUBLIC), inputs(lambda: Public(-X, Y))),
    "a class attribute of the dataset": (inputs(PUBLIC), patched(Public, "scale", -1.0, inputs(PUBLIC))),
    "a method of the dataset": (
        inputs(PUBLIC),
        patched(Public, "read", lambda s, i: -s.x[i], inputs(PUBLIC)),
    ),
    "__getitem__": (
        inputs(PUBLIC),
        patched(Public, "__getitem__", lambda self, i: (-self.x[i], self.y[i]), inputs(PUBLIC)),
    ),
    "samples out of sight": (inputs(lambda: Hidden(Y)), inputs(lambda: Hidden(Y.flip(0)))),
    "weights of a sampler": (inputs(weighted(torch.ones(64))), inputs(weighted(torch.arange(64.0) + 1e-3))),
    "another sampler": (
        inputs(loader(sampler=RandomSampler(X))),
        inputs(loader(sampler=RandomSampler(X, replacement=True))),
    ),
    "the batch size of a loader": (inputs(loader()), inputs(loader(batch_size=8))),
    "the order of a loader": (inputs(loader()), inputs(loader(shuffle=True))),
    "collate_fn": (inputs(loader()), inputs(loader(collate_fn=doubled))),
    "a class that the loss reads": (
        inputs(loss=of_class),
        patched(Config, "scale", -5.0, inputs(loss=of_class)),
    ),
    "an object that the loss reads": (
        inputs(loss=of_space),
        patched(SPACE, "scale", -5.0, inputs(loss=of_space)),
    ),
    "a tensor that the loss reads": (
        inputs(loss=of_tensor),
        patched(Config, "weights", torch.tensor([9.0, 1, 1]), inputs(loss=of_tensor)),
    ),
    "what the loss closes over": (inputs(loss=loss_of(lambda: 1.0)), inputs(loss=loss_of(lambda: -5.0))),
    "the validation data": (inputs(valid=(X, Y)), inputs(valid=(-X, Y))),
    "private validation data": (inputs(valid=Private(X, Y)), inputs(valid=Private(-X, Y))),
    "the learning rate": (inputs(), inputs(optimizer=functools.partial(torch.optim.SGD, lr=0.2))),
    "what an optimizer does": (
        inputs(optimizer=functools.partial(Step, lr=0.1)),
        patched(Step, "factor", -3.0, inputs(optimizer=functools.partial(Step, lr=0.1))),
    ),
    "last bits of the samples": (inputs(), inputs((X * 1.0000002, Y))),
    "a frozen parameter": (net(), changed(lambda m: m.linear.bias.requires_grad_(False))),
    "a part in evaluation mode": (net(), changed(lambda m: m.linear.eval())),
    "an initial weight": (net(), changed(lambda m: m.linear.weight.data[0, 0].add_(1e-3))),
    "an augmentation": (inputs(augment=lambda x, g: x + 1), inputs(augment=lambda x, g: x - 1)),
    "clip": (inputs(), inputs(clip=0.1)),
    "options of groups": (inputs(), inputs(groups={"*": {"weight_decay": 0.1}})),
}


def with_dict(patch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    patch.setitem(CONFIG, "scale", -5.0)
    return Net(), (X, Y), {"loss": of_dict}


CHANGES["a dict that the loss reads"] = (inputs(loss=of_dict), with_dict)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_raises(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, then = CHANGES[name]
    model, data, settings = first(monkeypatch)
    done = fit(tmp_path, model, data, **settings)
    model, data, settings = first(monkeypatch)
    again = fit(tmp_path, model, data, resume=True, **settings)
    for a, b in zip(done.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    model, data, settings = then(monkeypatch)
    with pytest.raises(CheckpointError, match=r"was made with|the first step has another"):
        fit(tmp_path, model, data, resume=True, **settings)


def test_what_shapes_no_weight_may_change(tmp_path: Path) -> None:
    fit(tmp_path, Net(), test=(X, Y))
    fit(tmp_path, Net(), test=(-X, Y), resume=True, log=lambda problem: {"a": 1.0})


def test_the_number_of_threads_may_change(tmp_path: Path) -> None:
    fit(tmp_path, Net())
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fit(tmp_path, Net(), resume=True)
    finally:
        torch.set_num_threads(threads)


def test_data_that_never_come_twice_alike_are_said_to_be_so(tmp_path: Path) -> None:
    class Fresh(Private):
        def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
            x, y = super().__getitem__(i)
            return x + torch.rand((), generator=self.stream), y

    def data() -> Fresh:
        dataset = Fresh(X, Y)
        dataset.stream = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "big"))
        return dataset

    fit(tmp_path, Net(), data())
    text = (tmp_path / "run.toml").read_text()
    assert "two first batches differ" in text
    assert "torch._C:Generator" in text  # under undigested
    fit(tmp_path, Net(), data(), resume=True)


def test_a_loader_that_has_been_used_resumes(tmp_path: Path) -> None:
    """Its generator stands elsewhere than at first; what the run draws from it comes from the checkpoint."""
    used = DataLoader(TensorDataset(X, Y), 16, shuffle=True, generator=torch.Generator().manual_seed(3))
    fit(tmp_path, Net(), used)
    fit(tmp_path, Net(), used, resume=True)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target, out = tmp_path / "precious", tmp_path / "run"
    target.write_text("precious")
    out.mkdir()
    (out / ".lock").symlink_to(target)
    with pytest.raises(CheckpointError, match=r"\.lock"):
        fit(out, Net())
    assert target.read_text() == "precious"
    assert (out / ".lock").is_symlink()


@pytest.mark.parametrize("text", ["12345\n", "{}", '{"pid": 1, "name": "another tool"}', ""])
def test_the_lock_of_another_program_stays(text: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(text)
    if text:
        with pytest.raises(CheckpointError, match="not a lock of torchlift"):
            fit(tmp_path, Net())
    else:
        fit(tmp_path, Net())
    assert (tmp_path / ".lock").read_text() == text


def test_a_pipe_in_the_place_of_the_lock_raises(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(CheckpointError, match="not a lock of torchlift"):
        fit(tmp_path, Net())
