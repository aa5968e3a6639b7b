"""search: the right objective, every sample in validation once, durable, shared, and the best is the best."""

import dataclasses
import functools
import json
import math
import re
import threading

import optuna
import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift import recipes, report
from torchlift.errors import CheckpointError, DataError, TorchliftError
from torchlift.experiments.arm import with_options
from torchlift.experiments.tune import Choice, Range, parse_space, search, tuning_page
from torchlift.experiments.tune.objective import k_folds
from torchlift.experiments.tune.space import default_space, draw, own_space, sort_values, table4

X = torch.linspace(-1, 1, 40)[:, None]
DATA = (X, 3 * X)


def linear() -> nn.Module:
    return nn.Linear(1, 1, bias=False)


@dataclasses.dataclass(frozen=True)
class SetWeight:
    """No training to speak of: the weight is what was drawn, so that the metric is known."""

    weight: float = 0.0

    def __call__(self, task, fit):
        fit(task, epochs=1, lr=0.0, optimizer=torch.optim.SGD)
        nn.init.constant_(task.model.weight, self.weight)
        return task


def error(weight: float) -> float:
    """The mean squared error of x ↦ weight·x on y = 3x."""
    return float(((weight - 3) * X).square().mean())


def quick(**more):
    settings = {
        "recipe": SetWeight,
        "space": {"weight": Range(0.0, 6.0)},
        "loss": "mse",
        "optimizer": torch.optim.SGD,
        "trials": 4,
        "prune": False,
    }
    return search(linear, DATA, DATA, **(settings | more))


def test_the_value_is_the_validation_metric_of_what_was_drawn():
    tuned = quick()
    assert not tuned.higher_is_better
    for trial in tuned.trials:
        assert trial.value == pytest.approx(error(trial.params["weight"]), rel=1e-5)
    assert tuned.value == min(trial.value for trial in tuned.trials)
    assert tuned.recipe == SetWeight(tuned.best["weight"])
    assert "4 complete" in tuned.table()


def test_it_finds_the_optimum():
    tuned = quick(trials=16)
    assert abs(tuned.best["weight"] - 3) < 0.3


def test_a_search_goes_on_where_it_stopped(tmp_path):
    first = quick(out=tmp_path / "t", trials=2)
    with pytest.raises(CheckpointError, match="resume=True"):
        quick(out=tmp_path / "t", trials=2)
    second = quick(out=tmp_path / "t", trials=4, resume=True)
    assert [t.params for t in second.trials[:2]] == [t.params for t in first.trials]
    drawn = [t.params["weight"] for t in second.trials]
    assert len(set(drawn)) == 4, "a resumed search must not draw the same points again"
    assert len(quick(out=tmp_path / "t", trials=4, resume=True).trials) == 4
    assert json.loads((tmp_path / "t" / "tuning.json").read_text())["value"] == second.value
    with pytest.raises(CheckpointError, match="space"):
        quick(out=tmp_path / "t", space={"weight": Range(0.0, 5.0)}, resume=True)
    assert len(quick(out=tmp_path / "t", trials=1, overwrite=True).trials) == 1


def test_points_a_killed_process_left_are_tried_again(tmp_path):
    from torchlift.experiments.tune.search import open_study

    quick(out=tmp_path, trials=1)
    study = open_study(tmp_path, False, False)
    lost = study.ask({"weight": optuna.distributions.FloatDistribution(0.0, 6.0)})
    tuned = quick(out=tmp_path, trials=2, resume=True)
    assert [t.state for t in tuned.trials] == ["complete", "fail", "complete"]
    assert tuned.trials[2].params == lost.params


@pytest.mark.slow
def test_workers_share_the_study(tmp_path):
    tuned = quick(out=tmp_path, trials=3, workers=2)
    assert len(tuned.trials) >= 3
    assert all(t.value == pytest.approx(error(t.params["weight"]), rel=1e-5) for t in tuned.trials)


def test_a_workers_error_is_one_line(tmp_path):
    lock = threading.Lock()
    with pytest.raises(TorchliftError, match=r"cannot be done: .*pickle"):
        search(lambda: (lock, linear())[1], DATA, DATA, loss="mse", out=tmp_path / "a", workers=2)
    with pytest.raises(TorchliftError, match="out="):
        quick(workers=2)


def test_line_searches_try_one_axis_after_the_other():
    @dataclasses.dataclass(frozen=True)
    class Separable(SetWeight):
        shift: float = 0.0

        def __call__(self, task, fit):
            fit(task, epochs=1, lr=0.0, optimizer=torch.optim.SGD)
            nn.init.constant_(task.model.weight, math.sqrt(abs(self.weight - 2) + abs(self.shift - 1)) + 3)
            return task

    space = {"weight": Choice((0.0, 1.0, 2.0, 3.0)), "shift": Choice((-1.0, 0.0, 1.0))}
    tuned = quick(recipe=Separable, space=space, method="lines", trials=100)
    assert tuned.best == {"weight": 2.0, "shift": 1.0}
    assert len(tuned.trials) == 4 + 3 - 1


def test_folds_hold_every_sample_once():
    x = torch.arange(10.0)[:, None]
    pairs = list(k_folds((x[:7], x[:7]), (x[7:], x[7:]), 3, seed=0))
    validation = torch.cat([valid[0] for _, valid in pairs]).flatten()
    assert sorted(validation.tolist()) == list(range(10))
    for (train, _), (valid, _) in pairs:
        assert sorted([*train.flatten().tolist(), *valid.flatten().tolist()]) == list(range(10))
    with pytest.raises(DataError, match="between 2 and the 10 samples"):
        list(k_folds((x, x), None, 11, seed=0))
    with pytest.raises(DataError, match="in memory"):
        list(k_folds([1, 2], None, 2, seed=0))


def test_cross_validation_is_the_mean_over_folds():
    tuned = quick(folds=4, trials=1)
    parts = [valid for _, valid in k_folds(DATA, DATA, 4, seed=0)]
    weight = tuned.best["weight"]
    expected = sum(float(((weight - 3) * x).square().mean()) for x, _ in parts) / 4
    assert tuned.value == pytest.approx(expected, rel=1e-5)


def test_the_hopeless_are_pruned():
    space = {"lr": Choice((0.5, 1e-6))}
    tuned = search(
        linear,
        DATA,
        DATA,
        space=space,
        loss="mse",
        optimizer=torch.optim.SGD,
        epochs=12,
        trials=20,
        batch_size=8,
    )
    states = {t.state for t in tuned.trials}
    assert tuned.best == {"lr": 0.5}
    assert states == {"complete", "pruned"}
    assert all(t.params["lr"] == 1e-6 for t in tuned.trials if t.state == "pruned")


def test_a_diverging_trial_is_pruned_not_fatal():
    space = {"lr": Choice((0.5, 1e38))}
    tuned = search(linear, DATA, DATA, space=space, loss="mse", optimizer=torch.optim.SGD, epochs=3, trials=8)
    assert tuned.best == {"lr": 0.5}
    assert {t.state for t in tuned.trials} == {"complete", "pruned"}


def test_nothing_complete_is_an_error():
    with pytest.raises(TorchliftError, match="no trial came to its end"):
        search(
            linear, DATA, DATA, space={"lr": Choice((1e38,))}, loss="mse", optimizer=torch.optim.SGD, trials=1
        )


def test_table_4_of_the_paper():
    study = optuna.create_study()
    for _ in range(5):
        trial = study.ask()
        drawn = table4(trial)
        low, high = zip((5e-3, 1e-1), (1e-3, 1e-2), (1e-3, 1e-1), strict=True)
        assert all(a <= rate <= b for a, rate, b in zip(low, drawn["lrs"], high, strict=True))
        assert 0.1 <= drawn["mix"] <= 0.6
        assert 10 <= drawn["until"].patience <= 20
        assert 800 <= drawn["width"] <= 1300
        assert drawn["init"] in ("zeros", "kaiming", "xavier")
        assert 3.5 <= drawn["clip"] <= 5
        parts = sort_values({"where": "trunk", **drawn}, recipes.NeuralLifting)
        assert set(parts.run) == {"clip"}
        recipes.NeuralLifting(**parts.recipe)
    assert default_space(recipes.NeuralLifting) is table4


def test_a_recipe_may_bring_its_own_space():
    class Own(SetWeight):
        @staticmethod
        def space(trial):
            return {"weight": trial.suggest_float("half", 0.0, 3.0) * 2}

    tuned = quick(recipe=Own, space=None, trials=2)
    assert tuned.recipe.weight == 2 * tuned.best["half"]
    assert tuned.values == {"weight": 2 * tuned.best["half"]}


def test_what_is_fixed_of_a_recipes_own_space_stays_fixed():
    class Own(SetWeight):
        @staticmethod
        def space(trial):
            return {"weight": trial.suggest_float("weight", 0.0, 1.0)}

    assert quick(recipe=Own, space=None, fixed={"weight": 3.0}, trials=1).value == 0.0


def test_spaces_read_from_text():
    read = parse_space({"a": "1:5", "b": "1e-3:1:log", "c": "x,y", "d": "true,0.5,3"})
    assert read == {
        "a": Range(1, 5),
        "b": Range(1e-3, 1, True),
        "c": Choice(("x", "y")),
        "d": Choice((True, 0.5, 3)),
    }
    trial = optuna.trial.FixedTrial({"a": 2, "b": 0.1, "c": "y", "d": 3})
    assert draw(read, trial) == {"a": 2, "b": 0.1, "c": "y", "d": 3}
    assert isinstance(draw(read, optuna.create_study().ask())["a"], int)


@pytest.mark.parametrize("text", ["1:x", "1:5:lin", "5:1", "0:1:log", "nan:1", "1:true", "1:2:log:3"])
def test_spaces_that_cannot_be_read(text):
    with pytest.raises(TorchliftError):
        parse_space({"a": text})


def test_values_go_where_they_belong():
    parts = sort_values({"weight": 1.0, "lr": 0.1, "opt.momentum": 0.9, "clip": 2.0}, SetWeight)
    assert (parts.recipe, parts.run) == ({"weight": 1.0}, {"clip": 2.0})
    assert parts.optimizer == {"lr": 0.1, "momentum": 0.9}
    built = with_options(functools.partial(torch.optim.SGD, lr=1.0), parts.optimizer)(linear().parameters())
    assert (built.defaults["lr"], built.defaults["momentum"]) == (0.1, 0.9)
    with pytest.raises(TorchliftError, match="'rate'"):
        sort_values({"rate": 1.0}, SetWeight)
    with pytest.raises(TorchliftError, match="no option 'momentun'"):
        with_options(torch.optim.SGD, {"momentun": 1.0})


def test_validation_data_or_folds():
    with pytest.raises(TorchliftError, match="folds=K"):
        search(linear, DATA)


def test_the_page(tmp_path):
    path = quick(trials=3).report(tmp_path / "report.html")
    text = path.read_text()
    assert "Along each parameter" in text
    assert "weight" in text


def test_a_logarithmic_search_has_a_logarithmic_axis():
    actual = quick(space={"weight": Range(1.0, 6.0, log=True)}, trials=2)
    (section,) = [s for s in tuning_page(actual.data()).sections if s.title == "Along each parameter"]
    assert section.blocks[0].log_x
    actual = quick(trials=2)
    (section,) = [s for s in tuning_page(actual.data()).sections if s.title == "Along each parameter"]
    assert not section.blocks[0].log_x


def test_the_best_lists_what_was_drawn_and_nothing_that_was_fixed():
    def space(trial):
        return {"weight": trial.suggest_float("weight", 0.0, 6.0), "lr": trial.suggest_float("lr", 0.1, 1.0)}

    tuned = quick(space=space, fixed={"weight": 2.0}, trials=2)
    assert set(tuned.best) == {"lr"}
    assert all(set(trial.params) == {"lr"} for trial in tuned.trials)
    assert tuned.values == {"weight": 2.0, **tuned.best}
    assert tuned.arm.recipe == SetWeight(2.0)
    with pytest.raises(TorchliftError, match="weight is fixed and searched"):
        quick(fixed={"weight": 2.0})


def test_a_search_that_was_stopped_draws_what_it_would_have_drawn(tmp_path):
    whole = quick(trials=4)
    quick(out=tmp_path, trials=2)
    again = quick(out=tmp_path, trials=4, resume=True)
    assert [trial.params for trial in again.trials] == [trial.params for trial in whole.trials]


def test_the_page_of_a_search_is_in_words():
    """No module paths, digests or class names of records; the best lists what was drawn."""
    tuned = quick(fixed={"weight": 2.0}, space={"lr": Range(1e-3, 1e-1, log=True)}, trials=2)
    data = tuned.data() | {"about": tuned.about | {"model.import": "torchlift.cli.searches:Maker"}}
    page = tuning_page(json.loads(json.dumps(data, default=str)))
    text = report.render(page)
    main = text[text.index("<main") : text.index("</main>")]
    assert not re.search(r"searches:Maker|digest|\.fields\.|torchlift\.", main)
    assert "0.001 to 0.1, logarithmic" in main
    (best,) = [block for block in page.sections[0].blocks if isinstance(block, report.KeyValues)]
    assert list(best.items) == ["lr"]
    assert page.title.endswith(": search for the best settings")


def test_what_is_searched_is_what_the_user_left_open() -> None:
    space = own_space(tl.recipes.Smol(bits=3.0), 0.1)
    assert list(space) == ["lr", "finetune_rate"]
    assert (space["lr"].low, space["lr"].high) == (pytest.approx(0.01), pytest.approx(1.0))
    assert list(own_space(tl.recipes.Smol(bits=3.0, finetune_rate=0.2), 0.1)) == ["lr"]
    assert own_space(tl.recipes.Plain(), None) == {}
