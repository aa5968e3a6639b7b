"""Layers that read averages of a map: the nearest such network, then trained; an error without a map."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from torchlift.core import Task, nodes
from torchlift.errors import TorchliftError
from torchlift.recipes import Chain, ContinuousSparsification, Inside, Pooled, Smol
from torchlift.testing import Steps


def net(flatten: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    front = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU()]
    return nn.Sequential(
        *front, nn.Flatten() if flatten else nn.Identity(), nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 2)
    )


def images(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return x, (x.mean((1, 2, 3)) > 0).long()


def run(model: nn.Module, recipe: object, **settings: object) -> tl.Result:
    data = images()
    common = {
        "epochs": 2,
        "batch_size": 16,
        "optimizer": partial(torch.optim.SGD, lr=0.05),
        "progress": False,
    }
    return tl.fit(model, data, data, recipe=recipe, **common | settings)


STILL = partial(torch.optim.SGD, lr=0.0)


@pytest.mark.parametrize(("channels", "rows", "columns", "size"), [(1, 1, 3, 2), (3, 2, 1, 2), (2, 2, 2, 3)])
def test_sums_are_the_nearest_weight_that_is_constant_on_blocks(channels, rows, columns, size):
    torch.manual_seed(0)
    maps = (channels, rows * size, columns * size)
    model = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(channels * rows * columns * size**2, 4))
    x = torch.randn(8, *maps)
    data = (x, torch.arange(8) % 4)
    small = tl.fit(model, data, recipe=Pooled(size=size), epochs=1, optimizer=STILL, progress=False).model
    constant = nn.functional.interpolate(
        nn.functional.avg_pool2d(model[2].weight.view(4, *maps), size), scale_factor=size
    )  # of all weights that are constant on blocks the mean is the nearest
    assert_close(small(x), nn.functional.linear(x.flatten(1), constant.flatten(1), model[2].bias))


def test_a_network_that_reads_blocks_alike_already_stays_the_same_function():
    model, x = net(), images()[0]
    with torch.no_grad():
        mean = nn.functional.avg_pool2d(model[3].weight.view(5, 3, 4, 4), 2)
        model[3].weight.copy_(nn.functional.interpolate(mean, scale_factor=2).flatten(1))
    small = run(model, Pooled("3"), optimizer=STILL).model
    assert_close(small(x), model(x))
    assert sum(p.numel() for p in small.parameters()) == sum(p.numel() for p in model.parameters()) - 36 * 5


def test_what_is_delivered_is_smaller_packs_exports_and_leaves_the_given_model_alone(tmp_path):
    model = net()
    before = copy.deepcopy(model.state_dict())
    result = run(model, Pooled())
    assert [type(layer).__name__ for layer in result.model[3]] == [
        "Unflatten",
        "AvgPool2d",
        "Flatten",
        "Linear",
    ]
    assert result.model[3][3].weight.shape == (5, 12)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    tl.deploy.save(result.model, tmp_path / "m.tl")
    x = images(4)[0]
    assert torch.equal(tl.deploy.load(tmp_path / "m.tl")(x), result.model.eval()(x))
    assert_close(torch.export.export(result.model, (x,)).module()(x), result.model(x))


def test_zeros_and_bits_follow_in_normalized_coordinates(tmp_path):
    chain = Chain(
        {
            "pool": Pooled("3*"),
            "prune": ContinuousSparsification(sparsity=0.4, finetune=0.0),
            "bits": Smol(bits=2.0, zeros="moving"),
        }
    )
    model = run(net(), Inside(tl.lifts.Normalize(), chain), epochs=4).model
    assert not list(nodes(model))
    assert type(model[3][3]) is nn.Linear
    assert float((model[3][3].weight == 0).float().mean()) >= 0.3
    tl.deploy.save(model, tmp_path / "m.tl")
    loaded = tl.deploy.load(tmp_path / "m.tl")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))


def pruned() -> nn.Module:
    model = net()
    with torch.no_grad():
        model[3].weight[:, ::3] = 0
    return model


class Twice(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.one, self.other = nn.Flatten(), nn.Linear(16, 2), nn.Linear(16, 2)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(self.flat(x)) + self.other(self.flat(x))


class Functional(nn.Module):
    """A map that its own code flattens."""

    def __init__(self, flatten: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.head, self.flatten = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(48, 2), flatten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.flatten(torch.relu(self.conv(x))))


@pytest.mark.parametrize(
    "flatten",
    [
        lambda x: x.view(-1, 48),
        lambda x: x.view(x.size(0), -1),
        lambda x: torch.flatten(x, 1),
        lambda x: x.flatten(1),
        lambda x: x.reshape(len(x), 48),
        lambda x: torch.reshape(x, (-1, 48)),
    ],
)
def test_a_map_is_found_whatever_flattens_it(flatten):
    head = run(Functional(flatten), Pooled(), epochs=1).model.head
    assert [type(layer).__name__ for layer in head] == ["Unflatten", "AvgPool2d", "Flatten", "Linear"]
    assert head[-1].in_features == 12


@pytest.mark.parametrize(
    ("model", "recipe", "words"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)),
            Pooled(),
            "1 × 1",
        ),
        (
            nn.Sequential(nn.Flatten(1, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2)),
            Pooled(),
            "has none",
        ),
        (net(), Pooled("5"), "there are 3"),
        (net(), Pooled(size=3), "size=3 does not divide"),
        (pruned(), Pooled(), "pool first, prune then"),
        (Twice(), Pooled(), "shares its weight"),
    ],
)
def test_what_cannot_be_pooled_raises_with_the_reason(model, recipe, words):
    with pytest.raises(TorchliftError, match=words):
        run(model, recipe)


def test_a_block_of_one_is_no_block():
    with pytest.raises(TorchliftError, match="2 or more"):
        Pooled(size=1)


def test_a_layer_that_is_frozen_stays_frozen():
    model = net()
    model[3].requires_grad_(False)
    small = Pooled("3").projected(Task(model), Steps(images(4))).model
    assert len(small[3]) == 4
    assert not any(p.requires_grad for p in small[3].parameters())
    assert Pooled().accepts(Task(model)) is None  # without data nothing is known
