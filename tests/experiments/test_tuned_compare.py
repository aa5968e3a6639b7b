"""compare: trials of their own for all, time as the price, a model itself, recipes by name."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch

import clocks
import torchlift as tl
from experiments.small import DATA, SETTINGS, data, model, numbers
from torchlift.errors import TorchliftError


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[tl.Comparison, Path]:
    out = tmp_path_factory.mktemp("tuned")
    low = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    recipes = {"smol": "smol", "masked": tl.lifts.SoftMask(strength=0.0)}
    settings = SETTINGS | {"optimizer": low}
    comparison = tl.compare(
        model, *DATA, recipes=recipes, seeds=2, budget=2, tune={"plain": 3, "smol": 3}, out=out, **settings
    )
    return comparison, out


def test_every_recipe_gets_trials_of_its_own_outside_the_table(tuned: tuple[tl.Comparison, Path]) -> None:
    comparison, out = tuned
    assert set(comparison.tuning) == {"plain", "smol"}
    for name in comparison.tuning:
        search = json.loads((out / f"{name}-tuning" / "tuning.json").read_text())
        assert search["about"]["seed"] == 2, "a seed that no run of the table has"
        assert len(search["trials"]) == 3
        assert search["trials"][0]["params"]["lr"] == pytest.approx(1e-3), "the given settings come first"
        done = [t["value"] for t in search["trials"] if t["state"] == "complete"]
        best = next(t for t in search["trials"] if t["value"] == max(done))
        for run in comparison.results[name]:
            assert f"lr={best['params']['lr']}" in run.settings["optimizer"]
    for run in comparison.results["masked"]:
        assert "lr=0.001" in run.settings["optimizer"]


def test_the_table_and_the_page_say_who_was_tuned(tuned: tuple[tl.Comparison, Path]) -> None:
    comparison, out = tuned
    table = comparison.table()
    assert "tuned on validation data, seed 2, outside the table: 3 trials each; untuned: masked" in table
    assert next(line for line in table.splitlines() if line.startswith("masked")).endswith("untuned")
    assert "lr " in next(line for line in table.splitlines() if line.startswith("smol"))
    assert repr(comparison) == table
    page = (out / "report.html").read_text()
    assert "untuned" in page
    assert "finetune_rate" in page


def test_a_tuned_comparison_goes_on(tuned: tuple[tl.Comparison, Path]) -> None:
    comparison, out = tuned
    low = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    recipes = {"smol": "smol", "masked": tl.lifts.SoftMask(strength=0.0)}
    settings = SETTINGS | {"optimizer": low, "tune": {"plain": 3, "smol": 3}, "out": out, "resume": True}
    again = tl.compare(model, *DATA, recipes=recipes, seeds=2, budget=2, **settings)
    assert numbers(again) == numbers(comparison)


def test_without_trials_the_table_says_untuned_and_a_model_is_copied() -> None:
    initial = model()
    comparison = tl.compare(initial, *DATA, recipes=["smol"], seeds=2, budget=1, **SETTINGS)
    assert "untuned: every recipe ran at the given rate" in comparison.table()
    assert "one model, not a function: all seeds start from its weights" in comparison.table()
    for runs in comparison.results.values():
        assert all(torch.equal(run.before[0].weight, initial[0].weight) for run in runs)


@pytest.mark.parametrize(("time", "ratio"), [("1.5x", 1.5), (28.0, 7 / 6)])
def test_time_as_the_price(tmp_path: Path, time: str | float, ratio: float) -> None:
    """A recipe that is half as fast gets half the FLOPs; the speeds are kept for whoever goes on."""

    def seconds(module: torch.nn.Module) -> float:
        """One for a layer, one for its node: a plain epoch of three steps takes six."""
        return float(isinstance(module, torch.nn.Linear | tl.Node) and module.training)

    recipes = {"smol": tl.recipes.Smol(bits=4.0)}
    settings = SETTINGS | {"recipes": recipes, "seeds": 1, "budget": 4, "out": tmp_path, "time": time}
    with clocks.by(seconds):
        comparison = tl.compare(model, *DATA, **settings)
    assert comparison.seconds == pytest.approx(24.0 * ratio)
    assert comparison.results["plain"][0].cost == pytest.approx(4.0 * ratio)
    assert comparison.results["smol"][0].cost == pytest.approx(2.0 * ratio, rel=0.1)
    assert f"{24 * ratio:.3g} s each" in comparison.table()
    assert numbers(tl.compare(model, *DATA, resume=True, **settings)) == numbers(comparison)


def seeded(seed: int) -> tl.data.Splits:
    return tl.data.Splits(data(seed), data(seed + 50), data(seed + 60), "classification")


def rates(*values: float) -> dict[str, tl.Arm]:
    return {f"lr {lr:g}": tl.Arm(optimizer=partial(torch.optim.SGD, lr=lr)) for lr in values}


def test_the_best_candidate_of_a_label_goes_into_the_table(tmp_path: Path) -> None:
    """By validation data of other seeds, one that diverges never; data and seeds as the experiment says."""
    arms = rates(1e-4, 0.1, 1e30)
    settings = SETTINGS | {"recipes": {"plain": arms, "low": {"lr 0.0001": arms["lr 0.0001"]}}, "budget": 2}
    settings |= {"seeds": (3, 4), "tuning_seeds": (7, 8), "out": tmp_path}
    comparison = tl.compare(model, seeded, **settings)
    tuning = comparison.tuning["plain"]
    assert comparison.tuning["low"].values == {"arm": "lr 0.0001"}
    assert tuning.candidates["lr 1e+30"] == -math.inf
    best = max(tuning.candidates, key=lambda name: tuning.candidates[name])
    assert tuning.values == {"arm": best}

    def alone(name: str, *seeds: int) -> list[tl.Result]:
        recipes = {"plain": arms[name]}
        return tl.compare(model, seeded, **SETTINGS, recipes=recipes, budget=2, seeds=seeds).results["plain"]

    for name in ("lr 0.0001", "lr 0.1"):
        own = [run.scores["valid"].metric for run in alone(name, 7, 8)]
        assert tuning.candidates[name] == pytest.approx(sum(own) / 2)
    assert comparison.scores("plain") == [run.scores["test"].metric for run in alone(best, 3, 4)]
    assert "seed 7, 8, outside the table: 1 or 3 trials each" in comparison.table()
    lines = (tmp_path / "candidates.jsonl").read_text()
    assert numbers(tl.compare(model, seeded, resume=True, **settings)) == numbers(comparison)
    assert (tmp_path / "candidates.jsonl").read_text() == lines, "finished trials are read"


def test_a_network_of_its_own_has_the_flops_of_the_comparisons() -> None:
    def wide() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    comparison = tl.compare(model, *DATA, recipes={"wide": tl.Arm(model=wide)}, seeds=1, budget=8, **SETTINGS)
    plain, own = comparison.results["plain"][0], comparison.results["wide"][0]
    assert own.model[0].out_features == 32
    assert own.flops == pytest.approx(plain.flops, rel=0.1)
    assert comparison.cost(own) == pytest.approx(8, rel=0.1)
    assert own.cost == pytest.approx(2, rel=0.1)
    with pytest.raises(TorchliftError, match="'wide' has a model of its own, which BestOf has no use for"):
        tl.fit(model(), DATA[0], DATA[1], recipe=tl.recipes.BestOf({"wide": tl.Arm(model=wide)}), **SETTINGS)


def test_wrong_arguments_are_one_line_each() -> None:
    run = partial(tl.compare, model, *DATA, seeds=1, budget=1, **SETTINGS)
    for wrong, message in (
        ({"recipes": "smol"}, r"pass \['smol'\]"),
        ({"recipes": ["smoll"]}, "did you mean 'smol'"),
        ({"recipes": ["smol"], "tune": -1}, "number of trials"),
        ({"recipes": ["smol"], "tune": {"smal": 3}}, "tune names smal; there are: plain, smol"),
        ({"recipes": ["smol"], "time": "fast"}, "seconds for each run, or '1x'"),
        ({"recipes": ["smol"], "epochs": 3}, "pass that in place of epochs="),
        ({"recipes": ["smol"], "batchsize": 3}, "did you mean 'batch_size'"),
        ({"recipes": {"several": {}}}, "'several' has no candidate"),
        (
            {"recipes": {"several": rates(0.1, 0.2)}, "tune": {"several": 3}},
            "several has candidates of its own",
        ),
        ({"recipes": {"a": rates(0.1, 0.2), "b": rates(0.1, 0.2)}}, "two different arms are called 'lr 0.1'"),
        ({"recipes": ["smol"], "tuning_seeds": (0,)}, "seed 0 is in the table"),
        ({"recipes": ["smol"], "tuning_seeds": ()}, "at least one seed"),
        ({"recipes": {"lift": tl.recipes.NeuralLifting("nothing")}}, "'lift' is not for this model"),
    ):
        with pytest.raises(TorchliftError, match=message):
            run(**wrong)
