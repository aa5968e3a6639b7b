"""What prune asks of a cut before it hands it out, and what that costs."""

import copy

import pytest
import torch
from torch import Tensor, nn

from random_cnns import RandomCNN
from random_transformers import random_transformer
from torchlift.channels.copies import copied
from torchlift.channels.couplings import couplings
from torchlift.channels.equality import agree
from torchlift.channels.follow import traced
from torchlift.deploy import prune
from torchlift.models import ResNet


class Odd(nn.Module):
    """A linear map of means that is off by ``gap`` where ``when`` says so."""

    def __init__(self, when=lambda _x: False, gap: float = 0.0, cast: bool = False) -> None:
        super().__init__()
        self.map = nn.Linear(3, 2)
        nn.init.constant_(self.map.weight, 0.5)
        nn.init.zeros_(self.map.bias)
        self.when, self.gap, self.cast = when, gap, cast

    def forward(self, x: Tensor) -> Tensor:
        x = x.float() if self.cast else x
        mapped = self.map(x.mean((2, 3)))
        return mapped + self.gap if self.when(x) else mapped


X = torch.randn(2, 3, 8, 8)


def agreed(model: nn.Module, other: nn.Module) -> bool:
    with torch.no_grad():
        return agree(model.eval(), other.eval(), X, (X[:1], [other(X[:1])]))


@pytest.mark.parametrize(
    "when",
    [
        lambda x: x.shape[-1] != 8,
        lambda x: len(x) == 2,
        lambda x: x.dtype == torch.float64,
        lambda x: x.shape[-1] == 8,
    ],
    ids=["another size", "another batch", "double precision", "the given size"],
)
def test_a_difference_anywhere_is_seen(when):
    assert agreed(Odd(), Odd())
    assert not agreed(Odd(), Odd(when, 1e-5))


@pytest.mark.parametrize("when", [lambda x: len(x) == 1, lambda x: len(x) == 2])
def test_what_is_no_number_does_not_agree(when):
    assert not agreed(Odd(), Odd(when, float("nan")))


def test_where_single_precision_rounds_double_decides():
    assert agreed(Odd(), Odd(lambda x: x.dtype == torch.float32, 1e-4))


def test_a_model_that_casts_is_compared_in_single_precision():
    assert agreed(Odd(cast=True), Odd(lambda _x: True, 1e-5, cast=True))
    assert not agreed(Odd(cast=True), Odd(lambda _x: True, 1e-3, cast=True))


class Counting(nn.Module):
    """Counts its calls, those of its copies too."""

    calls = 0

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return self.body(x)


def test_a_convolutional_network_runs_eight_times():
    """Followed once; cut, twice in each layout; cut and masked in double precision; masked in single."""
    torch.manual_seed(0)
    small = prune(Counting(ResNet(8, 8)), torch.randn(2, 3, 16, 16), 0.5)
    assert Counting.calls == 8
    assert small.body.head.in_features == 16


class Kept(nn.Module):
    """A module that wants to be copied in its own way."""

    def __deepcopy__(self, memo: dict[int, object]) -> "Kept":
        twin = Kept()
        twin.copied = True
        return twin


def test_copies_are_deep_copies():
    model = nn.Module()
    model.first, model.second = nn.Linear(3, 3), nn.Linear(3, 3)
    model.second.weight = model.first.weight
    model.norm, model.units, model.own = nn.BatchNorm1d(3), nn.LSTM(2, 2), Kept()
    whole = torch.arange(6.0)
    model.register_buffer("whole", whole)
    model.register_buffer("part", whole[:3])
    model.listed, model.shared = [model.first], {"norm": model.norm}
    model.also = model.shared
    model.first.weight.requires_grad_(False)
    twin, want = copied(model), copy.deepcopy(model)
    for duplicate in (twin, want):
        assert duplicate.second.weight is duplicate.first.weight
        assert not duplicate.first.weight.requires_grad
        assert duplicate.listed[0] is duplicate.first
        assert duplicate.shared["norm"] is duplicate.norm
        assert duplicate.also is duplicate.shared
        assert duplicate.part.data_ptr() == duplicate.whole.data_ptr() != model.whole.data_ptr()
        assert duplicate.own.copied
        assert duplicate.units._flat_weights[0] is duplicate.units.weight_ih_l0
    assert twin.state_dict().keys() == want.state_dict().keys()
    twin.norm.running_mean += 1
    twin.first.bias.data += 1
    twin.norm._forward_hooks[0] = print
    assert not model.norm.running_mean.any()
    assert not model.norm._forward_hooks
    assert torch.equal(model.first.bias, want.first.bias)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("draw", [lambda seed: RandomCNN(seed).draw(), random_transformer])
def test_couplings_are_the_classes_of_channels_that_touch_the_same_places(draw, seed):
    """Beside the definition, channel by channel."""
    actual = traced(*draw(seed), values=False)[0]
    parent, frozen = actual.labels.parent.tolist(), actual.labels.frozen()
    slices: dict[int, list[tuple[str, int, int]]] = {}
    for axis in actual.labels.axes:
        for index in range(axis.size):
            slices.setdefault(parent[axis.start + index], []).append((axis.name, axis.dim, index))
    joined = couplings(actual)
    for coupling in joined:
        touched = {(m.name, m.dim) for m in coupling.members}
        for number, root in enumerate(coupling.roots.tolist()):
            mine = {
                (m.name, m.dim, i) for m in coupling.members for i in m.index[m.channel == number].tolist()
            }
            assert mine == set(slices[root])
            assert {(n, d) for n, d, _ in mine} == touched
            assert frozen.get(root, coupling.blocked) == coupling.blocked
    kinds = [(frozenset((m.name, m.dim) for m in c.members), c.blocked) for c in joined]
    assert len(set(kinds)) == len(kinds)
    assert len({root for c in joined for root in c.roots.tolist()}) == sum(c.channels for c in joined)
