"""The reproduction entries of sparsity, on a few random samples and small networks."""

from functools import partial

import pytest
import torch
from entry_modules import module_of

from papers.savarese_thesis import conv6_tickets, layer_patterns, one_shot_pruning, pruning_runs
from torchlift.data import Splits
from torchlift.models import MLP
from torchlift.recipes import ContinuousSparsification
from torchlift.report import reproduction_page


def blobs() -> Splits:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 4, generator=generator)
    y = x[:, :3].argmax(1)
    return Splits((x[:48], y[:48]), (x[48:64], y[48:64]), (x[64:], y[64:]), "classification")


def images(name, folder=None, seed=0):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(48, 3, 32, 32, generator=generator), torch.arange(48) % 10
    return Splits((x, y), (x[:8], y[:8]), (x[8:24], y[8:24]), "classification")


def place(epochs: float = 3.0) -> pruning_runs.Setting:
    make = partial(MLP, 4, 12, 8, 3)
    return pruning_runs.Setting("a small perceptron", make, blobs(), epochs, pruning_runs.sgd(0.1, batch=16))


SETTINGS = {
    "one_shot_pruning": lambda: place(2.0),
    "ticket_search": lambda: (place(), 2),
    "mask_settings": place,
    "supermasks": place,
    "sequential_tickets": lambda: (place(), 0.5, (1, 2)),
    "conv6_tickets": lambda: (place(), 2, (1, 2), {"linear1*": 0.4, "*": 0.5}),
    "layer_patterns": lambda: (place(), ContinuousSparsification(sparsity=0.8)),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore:(no|every) weight was dropped", "ignore:every gate", "ignore:all of")
def test_an_entry_tells_a_table_and_curves_and_goes_on_where_it_was(name, monkeypatch, tmp_path):
    module = module_of(name)
    monkeypatch.setattr(module, "setting", lambda scale, data: SETTINGS[name]())
    monkeypatch.setattr(one_shot_pruning, "LEVELS", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9))
    first = module.run(tmp_path, seeds=2)
    assert first["seeds"] == [0, 1]
    assert "small scale" in first["scale"]
    assert first["finding"]
    assert {row["method"] for row in first["rows"]} == {row["method"] for row in first["trials"]}
    assert all(0 <= row["sparsity"]["mean"] <= 1 for row in first["rows"])
    assert first["curves"]
    assert reproduction_page(first).title == first["title"]

    def again(*_):
        raise AssertionError("a finished run is not repeated")

    monkeypatch.setattr(pruning_runs, "trial", again)
    assert module.run(tmp_path, seeds=2)["trials"] == first["trials"]


def test_the_sparsest_within_two_points_is_taken_seed_by_seed():
    rows = [
        {"method": "dense", "seed": 0, "sparsity": 0.0, "accuracy": 0.9},
        {"method": "dense", "seed": 1, "sparsity": 0.0, "accuracy": 0.8},
        {"method": "A, 0.5", "seed": 0, "sparsity": 0.5, "accuracy": 0.89},
        {"method": "A, 0.9", "seed": 0, "sparsity": 0.9, "accuracy": 0.87},
        {"method": "A, 0.9", "seed": 1, "sparsity": 0.9, "accuracy": 0.79},
    ]
    assert one_shot_pruning.sparsest(rows, "A") == {"per_seed": [0.5, 0.9], "mean": 0.7}


def test_every_method_has_its_settings_at_every_level():
    names = [list(one_shot_pruning.methods(level)) for level in one_shot_pruning.LEVELS]
    assert all(found == names[0] for found in names)
    assert {"CS", "MP", "MP per layer", "GMP", "IMP", "IMP-C", "ISS", "slimming", "ℓ₀", "STR"} == set(
        names[0]
    )


@pytest.mark.parametrize("scale", [0.001, 1.0])
@pytest.mark.parametrize("module", [conv6_tickets, layer_patterns])
def test_networks_of_images_at_both_scales(module, scale, monkeypatch):
    monkeypatch.setattr(module, "load", images)
    found = module.setting(scale, None)[0]
    with torch.no_grad():
        assert found.model(0)(found.data.train[0][:2]).shape == (2, 10)
    assert pruning_runs.weights(pruning_runs.Task(found.model(0)), found.where)


@pytest.mark.parametrize("name", ["one_shot_pruning", "ticket_search", "sequential_tickets", "mask_settings"])
def test_in_full_all_but_the_shortcuts_and_the_head_of_resnet20_are_pruned(name, monkeypatch):
    monkeypatch.setattr(pruning_runs, "load", images)
    module = module_of(name)
    made = module.setting(1.0, None)
    found = made if isinstance(made, pruning_runs.Setting) else made[0]
    names = list(pruning_runs.weights(pruning_runs.Task(found.model(0)), found.where))
    assert len(names) == 19
    assert not any("shortcut" in one or "head" in one for one in names)


def test_the_rate_drops_twice():
    assert [pruning_runs.dropping(t) for t in (0.0, 0.7, 0.9)] == pytest.approx([1.0, 0.1, 0.01])


def test_blocks_of_two_layers():
    rows = [{"layers": {"a": 0.0, "b": 0.5, "c": 1.0}}, {"layers": {"a": 0.5, "b": 0.5, "c": 0.0}}]
    assert [one["mean"] for one in layer_patterns.by_block(rows)] == [0.375, 0.5]
