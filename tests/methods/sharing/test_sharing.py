"""SoftSharing: train shared, fold, fine-tune, to a target."""

import json
from functools import partial

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.errors import TorchliftError
from torchlift.recipes import Chain, ContinuousSparsification, SoftSharing

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-3)


def net():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(12, 12, bias=False), nn.Tanh()) for _ in range(5)]
    return nn.Sequential(nn.Linear(4, 12), *blocks, nn.Linear(12, 3))


@pytest.fixture
def data():
    x = torch.randn(96, 4)
    y = x[:, :3].argmax(1)
    return (x[:64], y[:64]), (x[64:], y[64:])


def fit(recipe, data, **options):
    settings = {"optimizer": SGD, "epochs": 4, "batch_size": 16, "progress": False} | options
    return tl.fit(net(), *data, recipe=recipe, **settings)


OTHERS = 4 * 12 + 12 + 12 * 3 + 3
"""Parameters that do not share."""


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_one_template_leaves_one_weight(data):
    result = fit(SoftSharing(k=1), data)
    assert count(result.model) == OTHERS + 144 + 4
    assert [row["phase"] for row in result.history] == ["shared"] * 3 + ["finetune"]
    assert len(tl.analyze.reuse(result.model)) == 1


def test_templates_stay_where_they_are_fewer(data):
    result = fit(SoftSharing(k=2, fold=1.0), data)
    assert count(result.model) == OTHERS + 2 * 144 + 5 * 2


def test_without_a_fold_and_templates_the_weights_are_plain(data):
    result = fit(SoftSharing(k=2, fold=None, store="weights", finetune=0.0), data)
    assert list(result.model.state_dict()) == list(net().state_dict())


@pytest.mark.parametrize("finetune", [0.0, 0.25])
@pytest.mark.parametrize(
    ("weights", "k"), [(1, None), (2, None), (3, None), (4, None), (5, None), (1, 2), (2, 2)]
)
def test_a_target_in_parameters_is_met_with_as_little_folding_as_it_takes(weights, k, finetune, data):
    target = OTHERS + weights * 144 + 40
    result = fit(SoftSharing(k=k, parameters=target, finetune=finetune, store="weights"), data)
    assert target - 40 <= count(result.model) <= target
    assert result.history[-1]["parameters_target"] == target
    assert result.history[-1]["parameters"] == count(result.model)


def test_a_target_in_bytes_is_met(data):
    whole = tl.deploy.measure(net(), torch.randn(1, 4), repeats=1).file_bytes
    result = fit(SoftSharing(k=None, bytes=whole - 1000), data)
    assert tl.deploy.measure(result.model, torch.randn(1, 4), repeats=1).file_bytes <= whole - 1000
    assert result.history[-1]["bytes"] <= result.history[-1]["bytes_target"] == whole - 1000


def test_what_folding_cannot_reach_raises_before_training(data):
    recipe = SoftSharing(parameters=OTHERS + 100)
    with pytest.raises(TorchliftError, match=r"out of reach: .* leaves 247"):
        fit(recipe, data)
    assert "out of reach" in (recipe.accepts(tl.Task(net(), "cross_entropy")) or "")
    assert SoftSharing(parameters=OTHERS + 200).accepts(tl.Task(net(), "cross_entropy")) is None
    assert "no weight to lift" in (SoftSharing().accepts(tl.Task(nn.Linear(2, 2), "mse")) or "")


@pytest.mark.parametrize("options", [{"parameters": 5, "bytes": 5}, {"finetune": 1.0}, {"k": 0}])
def test_settings_without_sense_raise(options):
    with pytest.raises(TorchliftError):
        SoftSharing(**options)


def test_the_history_shows_how_alike_layers_are(data, tmp_path):
    result = fit(SoftSharing(k=5, recurrence=0.05), data, out=tmp_path / "run")
    rows = [row for row in result.history if row["phase"] == "shared"]
    first, last = (torch.tensor(row["similarity"]["model"]) for row in (rows[0], rows[-1]))
    assert first.shape == (5, 5)
    assert rows[-1]["mean_similarity"] == pytest.approx(float((last.sum() - 5) / 20), abs=1e-3)
    assert rows[-1]["mean_similarity"] > rows[0]["mean_similarity"]
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["similarity"] == rows[0]["similarity"]


def test_scales_do_not_decay():
    task = tl.Task(net(), "cross_entropy")
    lift = tl.lifts.Templates(k=1, fold=1.0)
    small = lift.project(lift.lift(task))
    options = tl.groups(small, {"*": {"weight_decay": 0.1}})
    free = [group for group in options if group.get("weight_decay") == 0.0]
    assert sorted(p.numel() for group in free for p in group["params"]) == [1, 1, 1, 1]


def test_a_run_resumes_to_the_same_bits(data, tmp_path):
    class StopError(Exception):
        pass

    def stop(row):
        if row["phase"] == "finetune":
            raise StopError

    recipe = SoftSharing(k=2, parameters=OTHERS + 310, finetune=0.5)
    straight = fit(recipe, data)
    with pytest.raises(StopError):
        fit(recipe, data, out=tmp_path / "run", listener=stop)
    resumed = fit(recipe, data, out=tmp_path / "run", resume=True)
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name


def test_shared_and_pruned_make_a_smaller_file_than_either(data):
    """A chain of methods gives one file: shared weights stay shared while they are pruned."""
    share, prune = SoftSharing(k=1), ContinuousSparsification(sparsity=0.8)
    sizes = {
        name: tl.deploy.measure(fit(recipe, data).model, torch.randn(1, 4), repeats=1).file_bytes
        for name, recipe in {
            "share": share,
            "prune": prune,
            "both": Chain({"share": share, "prune": prune}),
        }.items()
    }
    assert sizes["both"] < min(sizes["share"], sizes["prune"])
