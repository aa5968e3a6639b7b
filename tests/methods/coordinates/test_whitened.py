"""The first convolution in whitened patch coordinates."""

import pytest
import torch
from torch import nn
from torch.nn.functional import unfold

import torchlift as tl


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def smooth(n: int = 64) -> torch.Tensor:
    return nn.functional.avg_pool2d(torch.randn(n, 3, 20, 20), 3, 1)


def lifted(where: str = "first"):
    task = tl.Task(net())
    x = smooth()
    lift = tl.lifts.Whitened(where, batches=((x, torch.zeros(len(x)).long()),))
    return task, lift, lift.lift(task), x


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2}, {"dilation": 2}])
def test_neighboring_pixels_are_uncorrelated_in_the_new_coordinates(options: dict[str, int]) -> None:
    layer, x = nn.Conv2d(3, 6, 3, **options), smooth()
    lift = tl.lifts.Whitened(batches=((x, torch.zeros(len(x)).long()),))
    problem = lift.lift(tl.Task(nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())))
    patches = unfold(x, 3, **options).transpose(1, 2).flatten(0, 1)
    rows = patches @ next(iter(problem.nodes.values())).whitening
    before = torch.corrcoef(patches.T).abs().sub(torch.eye(27)).mean()
    after = torch.corrcoef(rows.T).abs().sub(torch.eye(27)).mean()
    assert after < 0.2 * before


def test_only_the_first_layer_is_drawn_anew_and_the_projection_is_exact() -> None:
    task, lift, problem, x = lifted()
    plain = lift.project(problem)
    assert not torch.equal(plain.model[0].weight, task.model[0].weight)
    assert torch.equal(plain.model[2].weight, task.model[2].weight)
    assert torch.equal(plain.model(x), problem.predict(x))
    assert type(plain.model[0]) is nn.Conv2d


def test_a_glob_picks_other_layers_and_a_perceptron_raises() -> None:
    _, _, problem, _ = lifted("*2.weight")
    assert [name.replace("/", ".") for name in problem.nodes] == ["model.2.weight"]
    x = torch.randn(8, 4)
    lift = tl.lifts.Whitened(batches=((x, torch.zeros(8).long()),))
    assert "no convolution" in str(lift.accepts(tl.Task(nn.Linear(4, 2))))


def test_looking_at_inputs_leaves_every_module_in_its_mode() -> None:
    model, x = net(), smooth(8)
    model[1].eval()
    tl.lifts.Whitened(batches=((x, torch.zeros(8).long()),)).lift(tl.Task(model))
    assert [module.training for module in model] == [True, False, True, True, True]


def test_it_needs_inputs() -> None:
    with pytest.raises(tl.TorchliftError, match=r"lift\(problem, fit\)"):
        tl.lifts.Whitened().lift(tl.Task(net()))


def test_it_trains_as_a_recipe() -> None:
    x = smooth(40)
    y = (x.mean((1, 2, 3)) > 0).long()
    result = tl.fit(net(), (x, y), recipe=tl.lifts.Whitened(), epochs=1, progress=False)
    assert type(result.model[0]) is nn.Conv2d
