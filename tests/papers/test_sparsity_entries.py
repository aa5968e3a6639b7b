"""The reproduction entries of sparsity, on a few random samples and small networks."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from entry_modules import module_of

from papers.savarese_thesis import (
    conv6_tickets,
    fair_table,
    layer_patterns,
    one_shot_pruning,
    one_shot_resnet,
    one_shot_vit,
    pruning_runs,
    ticket_search,
)
from torchlift.data import Splits
from torchlift.models import MLP
from torchlift.recipes import ContinuousSparsification
from torchlift.report import reproduction_page

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def blobs() -> Splits:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 4, generator=generator)
    y = x[:, :3].argmax(1)
    return Splits((x[:48], y[:48]), (x[48:64], y[48:64]), (x[64:], y[64:]), "classification")


def images(name, folder=None, seed=0):
    generator = torch.Generator().manual_seed(0)
    shape = (1, 28, 28) if name == "mnist" else (3, 32, 32)
    x, y = torch.rand(48, *shape, generator=generator), torch.arange(48) % 10
    return Splits((x, y), (x[:8], y[:8]), (x[8:24], y[8:24]), "classification")


def small_setting(epochs: float = 3.0) -> pruning_runs.Setting:
    make = partial(MLP, 4, 12, 8, 3)
    return pruning_runs.Setting("a small perceptron", make, blobs(), epochs, pruning_runs.sgd(0.1, batch=16))


SETTINGS = {
    "ticket_search": small_setting,
    "mask_settings": small_setting,
    "supermasks": small_setting,
    "sequential_tickets": lambda: (small_setting(), 0.5, (1, 2)),
    "conv6_tickets": lambda: (small_setting(), 2, (1, 2), {"linear1*": 0.4, "*": 0.5}),
    "layer_patterns": lambda: (small_setting(), ContinuousSparsification(sparsity=0.8)),
}


def again(*_):
    raise AssertionError("a finished run is not repeated")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore:(no|every) weight was dropped", "ignore:every gate", "ignore:all of")
def test_an_entry_tells_a_table_and_curves_and_goes_on_where_it_was(name, monkeypatch, tmp_path):
    module = module_of(name)
    monkeypatch.setattr(module, "setting", lambda stand_in, data: SETTINGS[name]())
    first = module.run(tmp_path, seeds=2, stand_in=True)
    assert first["seeds"] == [0, 1]
    assert first["stand_in"] is True
    assert first["finding"]
    assert {row["method"] for row in first["rows"]} == {row["method"] for row in first["trials"]}
    assert all(0 <= row["sparsity"]["mean"] <= 1 for row in first["rows"])
    assert first["curves"]
    assert reproduction_page(first).title == first["title"]
    monkeypatch.setattr(pruning_runs, "trial", again)
    assert module.run(tmp_path, seeds=2, stand_in=True)["trials"] == first["trials"]


def planned_rows(setting, ways, seeds, record):
    """Rows that say no more than which runs there would be."""
    numbers = {"sparsity": 0.5, "accuracy": 0.5, "seconds": 0.0, "layers": {}}
    return [{"method": name, "seed": seed, **numbers} for name in ("dense", *ways) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("module", "globs", "methods"),
    [
        (one_shot_pruning, "ResNet-20: CS*;ResNet-20: GMP*", {"dense", "CS, s_init -0.05", "GMP, 0.944"}),
        (ticket_search, "CS*;IMP, *", {"dense", "CS, s_init 0", "IMP, round 1"}),
    ],
)
def test_some_arms_are_run_alone_and_the_others_named(module, globs, methods, monkeypatch, tmp_path):
    monkeypatch.setattr(pruning_runs, "load", images)
    monkeypatch.setattr(module, "side_by_side", planned_rows)
    some = module.run(tmp_path, seeds=1, epochs=1, images=4, arms=globs)
    assert {row["method"].removeprefix("ResNet-20: ") for row in some["rows"]} == methods
    assert some["partial"].startswith("without ")
    assert not set(some["partial"].removeprefix("without ").split("; ")) & methods
    assert "partial" not in module.run(tmp_path, seeds=1, epochs=1, images=4)
    with pytest.raises(ValueError, match="matches none of"):
        module.run(tmp_path, seeds=1, epochs=1, images=4, arms="ACS*")


NAMES = ("dense", "CS", "CS of the source", "MP")


@pytest.mark.filterwarnings("ignore:(no|every) weight was dropped", "ignore:every gate", "ignore:all of")
def test_a_fair_table_tunes_on_validation_data_of_a_seed_it_does_not_use(monkeypatch, tmp_path):
    case = fair_table.Case(small_setting(1.0), (0.5, 0.8), NAMES)
    monkeypatch.setattr(one_shot_pruning, "small_case", lambda data: case)
    measured: list[tuple[int, bool]] = []
    real = fair_table.trial

    def noted(setting, name, way, seed):
        measured.append((seed, setting.data.test[0] is case.setting.data.test[0]))
        return real(setting, name, way, seed)

    monkeypatch.setattr(fair_table, "trial", noted)
    first = one_shot_pruning.run(tmp_path, seeds=2, stand_in=True)
    assert {seed for seed, test in measured if test} == {0, 1} == set(first["seeds"])
    assert [seed for seed, test in measured if not test] == [fair_table.TUNED_ON] * 6 * len(NAMES)
    assert {row["method"] for row in first["rows"]} == {"dense"} | {
        f"{n}, {level}" for n in NAMES[1:] for level in case.levels
    }
    assert all(len(one["trials"]) == fair_table.TRIALS for one in first["tuning"].values())
    assert first["finding"].startswith("dense")
    assert "CS as the thesis has it is number" in first["finding"]
    assert reproduction_page(first).title == first["title"]
    monkeypatch.setattr(fair_table, "trial", again)  # a finished run is not repeated
    assert one_shot_pruning.run(tmp_path, seeds=2, stand_in=True)["trials"] == first["trials"]


@pytest.mark.parametrize("name", ["one_shot_pruning", "one_shot_resnet", "one_shot_vit"])
def test_what_is_told_of_a_recorded_table_is_what_its_runs_say(name):
    record = json.loads((RESULTS / f"{name}.json").read_text())
    levels = {float(row["method"].rpartition(", ")[2]) for row in record["rows"] if row["method"] != "dense"}
    assert record["finding"] == fair_table.finding(record["trials"], sorted(levels))


def test_every_method_of_a_fair_table_has_as_many_trials():
    for name, method in fair_table.METHODS.items():
        assert len(method.ways(0.9, "*weight")) == fair_table.TRIALS, name


def test_of_trials_that_are_sparse_enough_the_most_accurate_is_taken_or_the_sparsest():
    trials = {
        "a": {"sparsity": 0.5, "accuracy": 0.9},
        "b": {"sparsity": 0.81, "accuracy": 0.7},
        "c": {"sparsity": 0.85, "accuracy": 0.8},
    }
    assert [fair_table.picked(trials, level) for level in (0.0, 0.8, 0.99)] == ["a", "c", "c"]


def test_a_fresh_cosine_begins_again_after_the_cut():
    schedule = fair_table.restarted(0.5)
    assert [schedule(t) for t in (0.0, 0.4999999, 0.5, 1.0)] == pytest.approx([1.0, 0.0, 1.0, 0.0], abs=1e-6)


def test_the_small_vit_tells_ten_classes():
    actual = one_shot_vit.case().setting
    assert actual.model(0)(actual.data.train[0][:2]).shape == (2, 10)


@pytest.mark.parametrize("stand_in", [True, False])
@pytest.mark.parametrize("module", [conv6_tickets, layer_patterns, one_shot_resnet])
def test_networks_of_images_and_their_stand_ins(module, stand_in, monkeypatch):
    monkeypatch.setattr(module, "load", images)
    monkeypatch.setattr(pruning_runs, "load", images)
    small = module is one_shot_resnet
    actual = module.case(None).setting if small else module.setting(stand_in, None)[0]
    with torch.no_grad():
        assert actual.model(0)(actual.data.train[0][:2]).shape == (2, 10)
    assert pruning_runs.prunable_weights(pruning_runs.Task(actual.model(0)), actual.where)


@pytest.mark.parametrize("name", ["ticket_search", "sequential_tickets", "mask_settings"])
def test_in_full_all_but_the_shortcuts_and_the_head_of_resnet20_are_pruned(name, monkeypatch):
    monkeypatch.setattr(pruning_runs, "load", images)
    module = module_of(name)
    settings = module.setting(False, None)
    actual = settings if isinstance(settings, pruning_runs.Setting) else settings[0]
    names = list(pruning_runs.prunable_weights(pruning_runs.Task(actual.model(0)), actual.where))
    assert len(names) == 19
    assert not any("shortcut" in one or "head" in one for one in names)


def test_blocks_of_two_layers():
    rows = [{"layers": {"a": 0.0, "b": 0.5, "c": 1.0}}, {"layers": {"a": 0.5, "b": 0.5, "c": 0.0}}]
    assert [one["mean"] for one in layer_patterns.by_block(rows)] == [0.375, 0.5]
