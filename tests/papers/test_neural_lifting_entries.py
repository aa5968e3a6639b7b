"""The reproduction entries of neural lifting, on a few random images and teachers."""

import math
from functools import partial

import pytest
import torch
from entry_modules import module_of

import torchlift as tl
from papers.common import arms
from papers.neural_lifting import complexity, figure2, figure3, figure4, lenet, table2, table3
from papers.our_searches import search_lenet_paper, search_text
from torchlift.data import Splits
from torchlift.report import reproduction_page


def images(name, folder=None, seed=0):
    generator = torch.Generator().manual_seed(0)

    def split(n):
        x = torch.rand(n, 3, 32, 32, generator=generator)
        return x, torch.randint(10, (n,), generator=generator)

    return Splits(split(12), split(6), split(6), "classification")


def entry(name, monkeypatch, tmp_path, **settings):
    module = module_of(name)
    for importer in (table2, figure2, figure4, search_lenet_paper):
        monkeypatch.setattr(importer, "load", images)
    result = module.run(tmp_path, **settings)
    assert result["rows"]
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert reproduction_page(result).title
    return result


def test_table2_has_the_paper_the_controls_and_ours_at_equal_cost(monkeypatch, tmp_path):
    monkeypatch.setattr(lenet, "PATIENCE", 1000)  # a phase that ends early leaves some of its budget
    result = entry("table2", monkeypatch, tmp_path, seeds=2, epochs=12)
    rows = {row["model"]: row for row in result["rows"]}
    assert {"SGD", lenet.LIFTING, lenet.SCHEDULE, lenet.TUNED, lenet.OURS} < set(rows)
    assert rows["SGD"]["paper"] == 67.37
    lenets = [row for name, row in rows.items() if name != "ResNet-20"]
    assert {row["parameters"] for row in lenets} == {70_346}
    costs = [row["cost"] for row in lenets]
    assert max(costs) < 1.1 * min(costs)  # less than a step is left of a phase
    assert rows[lenet.OURS]["to tuned plain"]["low"] <= rows[lenet.OURS]["to tuned plain"]["mean"]
    again = entry("table2", monkeypatch, tmp_path, seeds=2, epochs=12)
    assert [row["per seed"] for row in again["rows"]] == [row["per seed"] for row in result["rows"]]


def test_some_arms_of_table2_are_run_alone_and_the_others_named(monkeypatch, tmp_path):
    size = {"seeds": 1, "epochs": 1}
    result = entry("table2", monkeypatch, tmp_path, **size, arms="SGD;its*")
    assert [row["model"] for row in result["rows"]] == ["SGD", lenet.SCHEDULE]
    others = ("ResNet-20", lenet.LIFTING, lenet.TUNED, lenet.OURS, f"{lenet.OURS}, crops and flips")
    assert all(name in result["partial"] for name in others)
    assert "SGD" not in result["partial"]
    with pytest.raises(ValueError, match="matches none of ResNet-20, SGD"):
        entry("table2", monkeypatch, tmp_path, **size, arms="Adam")


def test_figure_4_says_where_its_control_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(figure4, "load", images)
    monkeypatch.setattr(figure4, "traced", lambda *_: {"finding": "Test accuracy.", "seeds": []})
    result = figure4.run(tmp_path, seeds=1, epochs=1, arms="conv*")
    assert result["partial"] == "without the dense lifter"
    with pytest.raises(ValueError, match="matches none of conv lifter, neural lifting"):
        figure4.run(tmp_path, seeds=1, epochs=1, arms="SGD")


def test_what_was_tried_is_told_best_first(monkeypatch, tmp_path):
    result = entry("search_lenet_paper", monkeypatch, tmp_path, epochs=1)
    plain = [row["validation"]["mean"] for row in result["rows"] if row["arm"].startswith("plain")]
    assert plain == sorted(plain, reverse=True)
    assert len(result["rows"]) == sum(len(tried) for _, tried in search_lenet_paper.TRIED.values())


@pytest.mark.parametrize(("name", "cycles"), [("figure2", 1), ("figure4", 2)])
def test_figures_have_curves_and_a_row_per_cycle(name, cycles, monkeypatch, tmp_path):
    result = entry(name, monkeypatch, tmp_path, seeds=1, epochs=30 * cycles)
    assert [row["cycle"] for row in result["rows"]] == list(range(1, cycles + 1))
    assert {line["panel"] for line in result["curves"]} == {"validation accuracy", "validation loss"}
    first = result["rows"][0]
    assert first["a − b"] == pytest.approx(first["loss, base"] - first["projected"])


def test_table3_and_complexity(monkeypatch, tmp_path):
    small = {7: table3.LIFTERS[7]}
    monkeypatch.setattr(table3, "LIFTERS", small)
    monkeypatch.setattr(complexity, "LIFTERS", small)
    size = {"seeds": 2, "epochs": 6, "images": 300}
    rows = {row["model"]: row for row in entry("table3", monkeypatch, tmp_path, **size)["rows"]}
    for column, name in (
        ("ratio to 5-block", table3.LARGE),
        ("ratio to tuned 5-block", table3.TUNED_LARGE),
        ("ratio to tuned 1-block", table3.TUNED),
    ):
        assert rows[name][column]["mean"] == pytest.approx(1)
    both = (rows[name]["per teacher"] for name in (table3.OURS, table3.LARGE))
    logs = [math.log(a / b) for a, b in zip(*both, strict=True)]
    assert rows[table3.OURS]["ratio to 5-block"]["mean"] == pytest.approx(math.exp(sum(logs) / 2))
    (row,) = entry("complexity", monkeypatch, tmp_path, **size)["rows"]
    assert row["Γ of the target"]["mean"] > 0


def test_teachers_along_their_inputs(tmp_path):
    result = figure3.run(tmp_path, seeds=2, images=21)
    assert [row["teacher"] for row in result["rows"]] == [7, 8, 9]
    assert all(0 <= value <= 1 for line in result["curves"] for value in line["y"])
    straight = torch.linspace(0, 1, 11).expand(5, -1)
    assert float(figure3.bends(straight)) == pytest.approx(0, abs=1e-4)
    assert float(figure3.bends(straight**2)) == pytest.approx(2, rel=1e-3)


def test_differences_are_paired():
    difference = arms.difference([3.0, 5.0, 8.0], [1.0, 4.0, 6.0])
    assert difference["mean"] == pytest.approx(5 / 3)
    assert difference["wins"] == 3
    assert difference["low"] < difference["mean"] < difference["high"]


def test_search_text_takes_every_recipe_at_its_best_rate(monkeypatch, tmp_path):
    from torchlift.models import CharLSTM
    from torchlift.recipes import Rotated

    x = torch.randint(0, 50, (40, 9), generator=torch.Generator().manual_seed(0))
    split = (x[:, :-1], x[:, 1:])
    monkeypatch.setattr(search_text, "load", lambda *_: Splits(split, split, split, "text"))
    monkeypatch.setattr(search_text, "MODELS", {"LSTM": lambda: CharLSTM(50, width=4, layers=1)})
    adam, rotated = search_text.arms()["plain"]["plain, lr 0.012"].optimizer, Rotated(stages=(1,), samples=8)
    plain = {f"plain, lr {lr:g}": tl.Arm(optimizer=partial(adam, lr=lr)) for lr in (0.1, 1e-6)}
    few = {"plain": plain, "rotated": {"rotated, lr 0.1": tl.Arm(rotated, partial(adam, lr=0.1))}}
    monkeypatch.setattr(search_text, "arms", lambda share: few)
    result = entry("search_text", monkeypatch, tmp_path, seeds=2)
    assert [row["arm"] for row in result["rows"]] == ["plain, lr 0.1", "rotated, lr 0.1"]
    assert len(result["rates"]) == 3
    assert "rotated, lr 0.1" in result["finding"]
