"""What is cut is proved dead from the weights: a network without zeros comes back as it is."""

import copy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torchlift as tl
from torchlift import stored
from torchlift.core import store
from torchlift.deploy import mask_weights, prune, shrink, shrinkable
from torchlift.models import LeNet5


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def small_cnn(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 9, 16), nn.ReLU(), nn.Linear(16, 4),
    )  # fmt: skip


def unchanged(model: nn.Module, x: Tensor) -> bool:
    small = shrink(model, x)
    pairs = zip(model.state_dict().items(), small.state_dict().items(), strict=True)
    return all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)


def test_an_untouched_lenet_keeps_all_its_parameters():
    model = LeNet5()
    assert size(model) == 70_346
    assert unchanged(model, torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize("seed", range(12))
def test_units_that_are_off_on_an_example_stay(seed):
    assert unchanged(small_cnn(seed), torch.randn(1, 1, 8, 8))


def test_a_trained_network_keeps_its_units():
    """Training turns some units off at most inputs: that is no zero."""
    model = small_cnn(0)
    x, y = torch.randn(64, 1, 8, 8), torch.randint(4, (64,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert unchanged(model.eval(), x[:1])
    assert shrink(model, x[:1])[5].out_features == 16


def test_what_is_announced_is_what_is_cut():
    model = small_cnn(1).eval()
    with torch.no_grad():
        model[0].weight[:3] = model[0].bias[:3] = 0
        model[5].weight[:5] = 0
    x = torch.randn(2, 1, 8, 8)
    small = shrink(model, x)
    cut = {row.layer: row.cut for row in shrinkable(model, x)}
    assert cut == {"0": 8 - small[0].out_channels, "5": 16 - small[5].out_features, "7": 0}
    assert cut["0"] == 3
    assert cut["5"] == 5
    assert_close(small(x), model(x), atol=1e-6, rtol=0)


class Written(nn.Module):
    """Writes into parts of tensors, in place and by views."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 6)
        view = h.view(-1, 6)
        view += self.first(x)
        return self.last(h)


def test_a_zero_that_was_written_over_is_none():
    assert unchanged(Written().eval(), torch.randn(3, 4))


class Coded(nn.Module):
    """A hidden layer whose first two units are zero, or a constant, and code of its own behind it."""

    def __init__(self, code: Callable[["Coded", Tensor], Tensor], bias: float) -> None:
        super().__init__()
        self.code = code
        self.first, self.last, self.other = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.register_buffer("state", torch.zeros(6))
        with torch.no_grad():
            self.first.weight[:2] = 0
            self.first.bias[:2] = bias

    def forward(self, x: Tensor) -> Tensor:
        return self.code(self, x)


def remembers(net: Coded, x: Tensor) -> Tensor:
    out = net.last(net.first(x) + net.state)
    net.state = net.state + x.mean()
    return out


def checks(net: Coded, x: Tensor) -> Tensor:
    assert x.isfinite().all()
    if (x > 1e6).any():
        raise RuntimeError("too large")
    return net.last(net.first(x))


NOTHING: dict[str, Callable[[Coded, Tensor], Tensor]] = {
    "random numbers": lambda net, x: net.last(net.first(x) + torch.rand_like(x[:, :1])),
    "a float": lambda net, x: net.last(net.first(x) + x.sum().item()),
    "a count": lambda net, x: net.last(net.first(x) + int((x > 0).sum())),
    "a place": lambda net, x: net.last(net.first(x) + int(x.argmax())),
    "a list": lambda net, x: net.last(net.first(x) + x.flatten().tolist()[0]),
    "an array": lambda net, x: net.last(net.first(x) + float(np.asarray(x)[0, 0])),
    "how many there are": lambda net, x: net.last(net.first(x) + len((x[:, 0] > 0).nonzero())),
    "a choice of rows": lambda net, x: net.last(net.first(x) + len(x[x[:, 0] > 0])),
    "a buffer that is replaced": remembers,
    "a buffer that is written": lambda net, x: net.last(net.first(x) + net.state.add_(x.mean())),
    "a branch that needs the units": lambda net, x: net.last(
        net.first(x) if x.mean() > 0 else net.first(x).sigmoid()
    ),
}
"""Code after which the next input may have anything where this one has a zero."""
SAFE: dict[str, Callable[[Coded, Tensor], Tensor]] = {
    "checks of the input": checks,
    "two readers": lambda net, x: (net.last if x.mean() > 0 else net.other)(net.first(x)),
    "a comparison": lambda net, x: (net.last if torch.equal(x, x.abs()) else net.other)(net.first(x)),
    "the input doubled in place": lambda net, x: net.last(net.first(x.mul_(2))),
    "the mean of a batch": lambda net, x: net.last(net.first(x) + net.first(x).mean(0, keepdim=True)),
}
SIZES: dict[str, Callable[[Coded, Tensor], Tensor]] = {
    "the number of samples": lambda net, x: net.last(net.first(x) * len(x)),
    "a sum over the batch": lambda net, x: net.last(net.first(x) + net.first(x).sum(0, keepdim=True)),
}
"""Code by which a constant depends on the input's shape; a zero does not."""


def first_call(model: nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(1)
    return copy.deepcopy(model)(x.clone())


def cut_by(code: Callable[[Coded, Tensor], Tensor], bias: float) -> int:
    """How many units go; what is left computes the same for any input."""
    torch.manual_seed(0)
    model = Coded(code, bias).eval()
    small = shrink(model, torch.rand(3, 4) + 0.1)
    for x in (sign * (torch.rand(samples, 4) + 0.1) for samples in (3, 7, 1) for sign in (1, -1)):
        assert_close(first_call(small, x), first_call(model, x), atol=1e-6, rtol=0)
    return 6 - small.first.out_features


@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize("name", NOTHING)
def test_numbers_from_elsewhere_are_not_constant(name, bias):
    assert cut_by(NOTHING[name], bias) == 0


@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize("name", SAFE)
def test_every_way_through_a_models_code_is_followed(name, bias):
    assert cut_by(SAFE[name], bias) == 2


@pytest.mark.parametrize("name", SIZES)
def test_constants_that_depend_on_shapes_stay(name):
    assert cut_by(SIZES[name], 0.0) == 2
    assert cut_by(SIZES[name], 0.7) == 0


def test_constants_that_depend_on_lengths_stay():
    torch.manual_seed(0)
    model = Coded(lambda net, x: net.last((net.first(x) * x.shape[1]).mean(1)), 0.7).eval()
    small = shrink(model, torch.randn(2, 6, 4))
    for length in (3, 6, 12):
        x = torch.randn(2, length, 4)
        assert_close(small(x), model(x), atol=1e-6, rtol=0)


def test_why_nothing_is_proved_is_told():
    rows = shrinkable(Coded(NOTHING["a float"], 0.0).eval(), torch.rand(3, 4))
    assert "numbers read off its input" in next(row.why for row in rows if row.layer == "first")
    rows = shrinkable(Coded(remembers, 0.0).eval(), torch.rand(3, 4))
    assert "writes to its own weights or buffers" in next(row.why for row in rows if row.layer == "first")


def test_records_of_grids_and_masks_are_cut_with_their_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    kept = torch.rand(6, 4) < 0.7
    kept[2:4] = False
    levels = torch.randint(1, 8, (6, 4))
    store(model, "0.weight", step=0.1 + torch.rand(6, 1), levels=levels * kept, kept=kept)
    store(model, "2.weight", step=torch.full((1, 1), 0.25), levels=torch.randint(-7, 8, (3, 6)))
    with torch.no_grad():
        model[0].bias[2:4] = 0
    before, small = stored(model), shrink(model, torch.randn(2, 4))
    after, left = stored(small), torch.tensor([0, 1, 4, 5])
    assert after.keys() == before.keys()
    assert torch.equal(after["0.weight"].levels, before["0.weight"].levels[left])
    assert torch.equal(after["0.weight"].step, before["0.weight"].step[left])
    assert torch.equal(after["0.weight"].kept, kept[left])
    assert torch.equal(after["2.weight"].levels, before["2.weight"].levels[:, left])


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak(function, *args) -> int:
    """Bytes that a call takes at most, above what there was."""
    before = most = memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, memory())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function(*args)
    finally:
        done.set()
        watcher.join()
    return most - before


def masked(model: nn.Module, _x: Tensor) -> nn.Module:
    return mask_weights(model, 0.9)


def magnitude_pruned(model: nn.Module, _x: Tensor) -> nn.Module:
    """The recipe, apart from its training."""
    return tl.recipes.MagnitudePruning(sparsity=0.9)(
        tl.Task(model, "mse"), lambda *_given, **_how: None
    ).model


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("call", [shrink, prune, masked, magnitude_pruned])
def test_memory_is_at_most_four_times_the_model(call):
    model = nn.Sequential(nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 3072)).eval()
    with torch.no_grad():
        model[0].weight[:999] = model[0].bias[:999] = 0
    x = torch.randn(2, 3072)
    call(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(2, 8))  # what is loaded once
    assert peak(call, model, x) <= 4 * 4 * size(model) + 2**24


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_long_inputs_are_cropped_where_the_model_takes_shorter_ones():
    seen: list[int] = []

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = nn.Sequential(nn.Conv1d(1, 16, 10, 5), nn.ReLU(), nn.Conv1d(16, 16, 8, 4), nn.ReLU())
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.shape[1])
            return self.head(self.maps(x[:, None]).mean(2))

    shrink(Speech(), torch.randn(2, 144_160))
    assert max(seen) <= 2**14


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_long_inputs_of_one_length_take_little_more_than_a_forward_pass():
    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = nn.Sequential(
                nn.Conv1d(1, 128, 10, 5), nn.ReLU(), nn.Conv1d(128, 64, 8, 4), nn.ReLU()
            )
            self.head = nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.maps(x.view(-1, 1, 144_160)).mean(2))

    model, x = Speech().eval(), torch.randn(2, 144_160)
    maps = 0

    def count(_layer: nn.Module, _given: object, out: Tensor) -> None:
        nonlocal maps
        maps += 4 * out.numel()

    with torch.no_grad():
        handles = [layer.register_forward_hook(count) for layer in model.maps]
        model(x)
    for handle in handles:
        handle.remove()
    shrink(nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU()), torch.randn(2, 1, 9))  # what is loaded once
    assert peak(shrink, model, x) <= 4 * 4 * size(model) + 1.5 * maps + 2**24


class Work(TorchDispatchMode):
    """How many operations are made, and entries computed."""

    operations = entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        self.operations += 1
        self.entries += sum(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))
        return out


def work(layers: int) -> tuple[int, int]:
    """What shrinking a network of so many layers takes."""
    model = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(8, 8), nn.ReLU()))).eval()
    with torch.no_grad():
        for layer in model[:-2:2]:
            layer.weight[:2] = layer.bias[:2] = 0
    with Work() as seen:
        assert shrink(model, torch.randn(2, 8))[0].out_features == 6
    return seen.operations, seen.entries


def test_twice_the_layers_are_twice_the_work():
    few, many = work(8), work(16)
    assert many[0] <= 2.2 * few[0]
    assert many[1] <= 3 * few[1]


def test_auto_leaves_plain_models_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(128, 6)
    y = (x[:, 0] > 0).long()
    actual = tl.auto(model, (x, y), (x, y), budget=4, candidates={"plain": "plain"})
    assert size(actual.model) == size(model)


class Squeeze(nn.Module):
    """Channels weighted by what their averages say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * nn.functional.hardsigmoid(self.up(self.down(mean).relu()))


def block(inside: int, outside: int, stride: int) -> nn.Module:
    """A convolution of each channel, weighted channels, and one over all channels."""
    return nn.Sequential(
        nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False), nn.BatchNorm2d(inside), nn.ReLU(),
        Squeeze(inside), nn.Conv2d(inside, outside, 1, bias=False), nn.BatchNorm2d(outside), nn.Hardswish(),
    )  # fmt: skip


class Detector(nn.Module):
    """What finds text in images: maps of three sizes, brought to one, and a head that is twice as fine.

    Its mean and its scale are views of a single number, and its grid is a strided part of another tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.stages = nn.ModuleList([block(8, 16, 1), block(16, 24, 2), block(24, 32, 2)])
        self.laterals = nn.ModuleList(nn.Conv2d(width, 12, 1, bias=False) for width in (16, 24, 32))
        self.head = nn.Sequential(
            nn.Conv2d(36, 9, 3, padding=1, bias=False), nn.BatchNorm2d(9), nn.ReLU(),
            nn.ConvTranspose2d(9, 9, 2, 2), nn.BatchNorm2d(9), nn.ReLU(), nn.Conv2d(9, 1, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.register_buffer("mean", torch.full((1, 1, 1, 1), 0.45).expand(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor([0.22]).expand(3)[:1].as_strided((1,), (3,)))
        self.register_buffer("grid", torch.arange(64.0).view(8, 8)[::2, ::3].t())

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem((x - self.mean) / self.scale)
        maps = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            h = stage(h)
            maps.append(lateral(h))
        fine = maps[0].shape[-2:]
        return (
            self.head(torch.cat([nn.functional.interpolate(m, fine) for m in maps], 1)) + 0 * self.grid[0, 0]
        )


def detector(seed: int = 0) -> Detector:
    """One whose norms are as after training: many channels are off at most inputs, none is zero."""
    torch.manual_seed(seed)
    model = Detector().eval()
    with torch.no_grad():
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.1, 2)
                norm.weight.normal_()
                norm.bias.normal_(-1.5)
    return model


def test_a_detector_with_expanded_buffers_keeps_its_channels_and_is_measured():
    model, x = detector(), torch.rand(1, 3, 64, 64)
    off = (model.stages[0][:3](model.stem((x - model.mean) / model.scale)) == 0).flatten(2).all(2).sum()
    assert off > 0, "some channels are off on the example"
    assert unchanged(model, x)
    assert tl.deploy.measure(model, x, repeats=1).params == size(model)


def test_a_detector_loses_the_channels_that_are_zero():
    model, x = detector(), torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        model.stages[1][4].weight[:5] = 0
        model.stages[1][5].bias[:5] = 0
        model.stages[1][5].running_mean[:5] = 0
    small = shrink(model, x)
    assert small.stages[1][4].out_channels == 24 - 5
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    assert tl.deploy.measure(small, x, repeats=1).params == size(small)


def python_calls(function, *args) -> int:
    """How many Python functions a call enters."""
    count = 0

    def note(_frame, event, _given) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("zeros", [0, 2])
def test_work_grows_with_the_number_of_layers_and_not_faster(zeros):
    """A thousand layers take fifty times what twenty do."""

    def deep(layers: int) -> nn.Module:
        model = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(8, 8), nn.ReLU()))).eval()
        with torch.no_grad():
            for layer in model[::2]:
                layer.weight[:zeros] = layer.bias[:zeros] = 0
        return model

    x = torch.randn(2, 8)
    shrink(deep(3), x)
    work = [python_calls(shrink, deep(layers), x) for layers in (10, 20, 40)]
    assert work[2] - work[1] <= 2.1 * (work[1] - work[0])
    assert (work[2] - work[1]) / 20 <= 1600


def test_what_is_frozen_in_evaluation_mode_stays_so():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).train()
    model[1].eval()
    with torch.no_grad():
        model[0].weight[:2] = model[0].bias[:2] = model[1].bias[:2] = 0
    small = shrink(model, torch.randn(3, 4))
    assert small[0].out_features == 4
    assert [module.training for module in small.modules()] == [module.training for module in model.modules()]
