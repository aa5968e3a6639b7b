"""The reproduction entries of learned precision, tiny."""

from functools import partial

import pytest
import torch
from entry_modules import module_of
from torch import nn

import torchlift as tl
from papers.savarese_thesis import precision_runs, pruning_runs, smol_activations, smol_cifar10
from papers.savarese_thesis.precision_runs import Setting, bits_of, grids
from torchlift.core import named, select, store
from torchlift.data import Splits
from torchlift.models import MLP
from torchlift.report import reproduction_page


def tiny(*_, **__):
    """A perceptron on a few random vectors."""
    generator = torch.Generator().manual_seed(0)

    def split(n):
        x = torch.randn(n, 6, generator=generator)
        return x, (x[:, 0] > 0).long()

    data = Splits(split(32), split(16), split(16), "classification")
    return Setting("tiny", partial(MLP, 6, 16, 2), data, 2.0, precision_runs.sgd(0.05, batch=8))


def entry(name, monkeypatch, tmp_path, **settings):
    module = module_of(name)
    for loader in ("lenet", "digits"):
        monkeypatch.setattr(module, loader, tiny, raising=False)
    result = module.run(tmp_path, stand_in=True, **settings)
    assert result["stand_in"] is True
    assert reproduction_page(result).title
    return result


def test_every_method_has_as_many_trials_and_its_files_stand_in_one_figure(monkeypatch, tmp_path):
    assert all(len(trials) == 3 and len(sizes) == 2 for trials, sizes, _ in smol_cifar10.METHODS.values())
    few = {
        name: (trials[:2], sizes[:1], make)
        for name, (trials, sizes, make) in smol_cifar10.METHODS.items()
        if name in ("SMOL", "LSQ")
    }
    monkeypatch.setattr(smol_cifar10, "METHODS", few)
    result = entry("smol_cifar10", monkeypatch, tmp_path, seeds=1)
    rows = {row["method"]: row for row in result["rows"]}
    assert set(result["sizes"]) == {"float", "SMOL", "LSQ"}
    assert rows["float"]["bits"]["mean"] == 32.0
    assert rows["SMOL, 1"]["bits"]["mean"] <= 1.0
    assert rows["LSQ, 2"]["bits"]["mean"] <= 2.0
    lines = (next(tmp_path.glob("smol-cifar10*")) / "cells.jsonl").read_text()
    assert [lines.count(f'"key": "{name}, tuning') for name in few] == [2, 2]
    costs = [row["cost"] for row in result["trials"]]
    assert max(costs) < 1.1 * min(costs)


def test_some_arms_are_run_alone_and_the_others_named(monkeypatch, tmp_path):
    monkeypatch.setattr(smol_cifar10, "published", tiny)
    result = smol_cifar10.run(tmp_path, seeds=1, arms="float;LSQ*")
    assert [row["method"] for row in result["rows"]] == ["float", "LSQ, 2"]
    assert result["partial"].startswith("without BSQ; SMOL, 1e-06; SMOL, ")


def test_shuffled_precisions_are_the_same_precisions_in_other_places(monkeypatch, tmp_path):
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    precisions = torch.randint(0, 4, (8, 8))
    levels = tl.lifts.precision.to_grid(torch.randn(8, 8), precisions) * 4  # of three bits at most
    store(layer, "weight", step=torch.tensor(0.25), levels=levels)
    (bits, step), (same, _) = grids(layer, 1)["weight"], grids(layer, None)["weight"]
    assert step > 0
    assert torch.equal(bits.flatten().sort().values, same.flatten().sort().values)
    assert not torch.equal(bits, same)
    result = entry("shuffled_precisions", monkeypatch, tmp_path, seeds=1)
    assert [row["thesis"] for row in result["rows"]] == pytest.approx([0.928, 0.915, 0.893])
    lost = result["shuffling"]["mean"]
    same, other = (row["accuracy"]["mean"] for row in result["rows"][1:])
    assert lost == pytest.approx(other - same)


def test_more_noise_means_fewer_bits(monkeypatch, tmp_path):
    result = entry("smol_balance", monkeypatch, tmp_path, seeds=1)
    bits = [row["bits"]["mean"] for row in result["rows"]]
    assert bits[-1] < bits[0]
    assert {curve["panel"] for curve in result["curves"]} == {"accuracy", "bits"}


def test_activations_have_bits_of_their_own(monkeypatch, tmp_path):
    result = entry("smol_activations", monkeypatch, tmp_path, seeds=1)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["PACT, 2 bits"]["activation bits"]["mean"] == 2.0
    assert "activation bits" not in rows["float"]
    assert smol_activations.THESIS in result["notes"][0]


@pytest.mark.parametrize("name", ["smol_cifar10", "smol_balance", "shuffled_precisions", "layer_precisions"])
def test_in_full_all_but_the_shortcuts_of_resnet20_are_quantized(name, monkeypatch, tmp_path):
    """As in the source's section 5.3.3."""
    seen = {}

    def runs(bench, ways, seeds):
        seen.update(ways)
        raise StopIteration

    monkeypatch.setattr(pruning_runs, "load", lambda *_: tiny().data)
    monkeypatch.setattr(precision_runs.Bench, "runs", runs)
    with pytest.raises(StopIteration):
        module_of(name).run(tmp_path, seeds=1)
    names = named(tl.Task(tl.models.resnet(20)))
    for way in filter(None, seen.values()):
        picked = [one for one in select(names, way.recipes["bits"].where, name) if names[one].ndim > 1]
        assert len(picked) == 20
        assert not any("shortcut" in one for one in picked)
    setting = precision_runs.published(None)
    assert len(precision_runs.weights_of(setting.model(0), setting.where)) == 20


def test_bits_of_what_lies_on_no_grid():
    assert bits_of(torch.randn(10, 10)) == 32.0
    assert bits_of(torch.tensor([0.1, 0.37, 1.9, 2.2]).repeat(25).view(10, 10)) == 2
