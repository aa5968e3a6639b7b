"""What is asked of a channel mask is what the shrunken model has."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import clocks
import torchlift as tl
from methods.sparsity.sparse_runs import model
from torchlift.core import Task
from torchlift.deploy import measure, shrink
from torchlift.errors import TorchliftError
from torchlift.models import ResNet
from torchlift.recipes import ChannelPruning, ContinuousSparsification, IterativeMagnitude, MagnitudePruning

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def images() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32, 3, 16, 16, generator=generator), torch.arange(32) % 4


def run(recipe, net: nn.Module, epochs: float = 2):
    return tl.fit(net, images(), recipe=recipe, epochs=epochs, optimizer=SGD, batch_size=16, progress=False)


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return ResNet(8, 16, classes=4)


def size(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


COUNTS = {
    "parameters": lambda net: float(size(net)),
    "macs": lambda net: float(measure(net, images()[0][:2], repeats=1).macs),
    "bytes": lambda net: float(measure(net, images()[0][:2], repeats=1).file_bytes),
}


@pytest.mark.filterwarnings("ignore:every gate of")
@pytest.mark.parametrize("name", ["parameters", "macs", "bytes"])
def test_a_channel_mask_leaves_what_was_asked(name):
    net = resnet()
    target = 0.4 * COUNTS[name](net)
    result = run(ContinuousSparsification(granularity="channel", **{name: target}), net)
    small = shrink(result.model, images()[0][:2])
    assert COUNTS[name](small) == pytest.approx(target, rel=0.02)
    assert result.history[-1][name] == pytest.approx(COUNTS[name](small), rel=0.01)
    assert_close(small.eval()(images()[0]), result.model.eval()(images()[0]), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:every gate of")
@pytest.mark.filterwarnings("ignore:macs=")
@pytest.mark.parametrize("options", [{"sparsity": 0.6}, {"macs": 0.4}, {"s_init": -0.001}])
def test_widths_of_a_learned_mask_are_multiples(options):
    """With a target of any kind, and without one."""
    net = resnet()
    if "macs" in options:
        options = {"macs": options["macs"] * COUNTS["macs"](net)}
    result = run(ContinuousSparsification(granularity="channel", round_to=4, **options), net)
    small = shrink(result.model, images()[0][:2])
    widths = [m.out_channels for m in small.modules() if isinstance(m, nn.Conv2d)]
    assert all(width % 4 == 0 for width in widths)
    assert sum(widths) < sum(m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d))


def test_the_sparsity_of_the_whole_model_stands_beside_that_of_the_chosen_weights():
    for recipe in (ContinuousSparsification(sparsity=0.5, where="*conv1*"), MagnitudePruning(0.5, "*conv1*")):
        result = run(recipe, resnet())
        parts = dict(result.model.named_parameters())
        zeros = sum(int((p == 0).sum()) for n, p in parts.items())
        for row in result.history:
            assert row["model_sparsity"] <= row["sparsity"] or not row["sparsity"]
        assert result.history[-1]["model_sparsity"] == pytest.approx(zeros / size(result.model))


def test_the_nearest_is_said_where_whole_channels_are_too_coarse():
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 3), nn.ReLU(), nn.Linear(3, 4))
    with pytest.warns(UserWarning, match="the nearest that this mask can leave is 1550"):
        result = run(ContinuousSparsification(granularity="channel", parameters=1700), net)
    assert size(shrink(result.model, images()[0][:2])) == 1550  # of 777, 1550 and 2323


def test_out_of_reach_raises_with_the_range():
    with pytest.raises(TorchliftError, match="out of reach"):
        run(ContinuousSparsification(granularity="channel", parameters=3), resnet())
    with pytest.raises(TorchliftError, match="latency= needs"):
        ContinuousSparsification(latency=1.0)


@pytest.mark.parametrize("options", [{"ratio": 0.5}, {"parameters": 20_000}, {"criterion": "taylor"}])
def test_channel_pruning_gives_a_smaller_network_that_was_trained_on(options):
    net = resnet()
    result = run(ChannelPruning(**options, scope="global"), net)
    assert result.history[-1]["parameters"] == size(result.model) < size(net)
    if "parameters" in options:
        assert size(result.model) == pytest.approx(options["parameters"], rel=0.02)
    assert result.model(images()[0]).shape == (32, 4)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def test_the_default_picks_recurrent_weights_too():
    torch.manual_seed(0)
    x, y = torch.randn(32, 5, 8), torch.arange(32) % 2
    result = tl.fit(
        Recurrent(), (x, y), recipe=MagnitudePruning(0.9), epochs=2, optimizer=SGD, progress=False
    )
    pruned = {name for name, record in result.stored.items() if not bool(record.kept.all())}
    assert pruned == {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "head.weight"}
    zeros = [float((p == 0).double().mean()) for n, p in result.model.named_parameters() if p.ndim > 1]
    assert sum(zeros) / len(zeros) > 0.5
    assert result.history[-1]["sparsity"] == pytest.approx(0.9, abs=0.01)


def test_iterative_pruning_removes_no_less_than_the_fraction():
    """Of n weights left ⌈τ n⌉ go: 320 → 273 → 233 → 199 at τ = 0.145."""
    task, left = Task(model()), []
    for _ in range(3):
        task = IterativeMagnitude(fraction=0.145).cut(task)
        left.append(sum(int((w != 0).sum()) for w in task.parameters() if w.ndim > 1))
    assert left == [273, 233, 199]


@pytest.mark.filterwarnings("ignore:every gate of")
def test_latency_is_met_on_the_shrunken_model():
    """A clock that goes by parameters: what is measured is what is steered by."""
    net = resnet()
    target = 0.5e-3 * size(net)  # milliseconds
    with clocks.by_parameters(1e-6):
        result = run(ContinuousSparsification(granularity="channel", latency=target), net)
    assert 1e-3 * size(shrink(result.model, images()[0][:2])) == pytest.approx(target, rel=0.03)
    assert result.history[-1]["latency"] == pytest.approx(target, rel=0.03)
