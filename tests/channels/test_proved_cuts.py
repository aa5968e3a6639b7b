"""What is cut is proved dead from the weights: a network without zeros comes back as it is."""

import threading
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import torchlift as tl
from torchlift.core.stored import store, stored
from torchlift.deploy import mask_weights, prune, shrink, shrinkable
from torchlift.models import LeNet5
from torchlift.testing.shrink_trials import trial


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


class Noisy(nn.Module):
    """Adds random numbers, and a number read off the input."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(4, 6), nn.Linear(6, 2), how
        with torch.no_grad():
            self.first.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h + (torch.rand_like(h) if self.how == "random" else x.sum().item()))


@pytest.mark.parametrize("how", ["random", "number"])
def test_numbers_from_elsewhere_are_not_constant(how):
    assert not any(row.cut for row in shrinkable(Noisy(how).eval(), torch.randn(3, 4)))


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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("call", [shrink, prune, lambda model, _x: mask_weights(model, 0.9)])
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


@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_random_networks_without_zeros_are_unchanged_and_planted_ones_lose_these(kind):
    for seed in range(3):
        assert trial(kind, seed, planted=False).left == 1
        planted = trial(kind, seed)
        assert planted.error <= 1e-6
        assert planted.cut == planted.masked or planted.kept
        assert not planted.unexplained


def test_auto_leaves_plain_models_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(128, 6)
    y = (x[:, 0] > 0).long()
    found = tl.auto(model, (x, y), (x, y), budget=4, candidates={"plain": "plain"})
    assert size(found.model) == size(model)
