from functools import partial

import pytest
import torch
from torch.testing import assert_close

import torchlift as tl
from torchlift.core import Task, nodes
from torchlift.errors import TorchliftError
from torchlift.recipes import NeuralLifting
from torchlift.train.until import Epochs, Plateau


class Recorder:
    """A fit that notes what it is asked, and learns nothing."""

    epochs = 9.0

    def __init__(self):
        self.calls = []

    def __call__(self, problem, **settings):
        self.calls.append((type(problem).__name__, settings))

    def using(self, **settings):
        return partial(self, **settings)

    def batches(self):
        yield torch.rand(4, 5), torch.rand(4, 1)


class Scripted(Recorder):
    """A fit whose validation curve is given: it runs each phase's rule over it and notes the epochs."""

    def __init__(self, curve):
        super().__init__()
        self.curve, self.switches = curve, []

    def __call__(self, problem, *, until, name, **settings):
        self.switches.append((name, next(n for n, value in enumerate(self.curve, 1) if until.update(value))))


def task():
    torch.manual_seed(0)
    return Task(tl.models.BlockNet(1), "mse")


def data(n=96):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, 5, generator=generator)
    return x, x.square().sum(1, keepdim=True)


def test_phases_rates_and_shares_are_handed_on():
    fit = Recorder()
    NeuralLifting("trunk", lrs=(0.1, 0.2, 0.3), cycles=2)(task(), fit)
    assert [settings["name"] for _, settings in fit.calls] == ["base", "lifted", "project"] * 2
    assert [settings["lr"] for _, settings in fit.calls] == [0.1, 0.2, 0.3] * 2
    assert [kind for kind, _ in fit.calls] == ["Task", "Task", "Distil"] * 2
    assert sum(settings["share"] for _, settings in fit.calls) == pytest.approx(1.0)
    assert {settings["keep"] for _, settings in fit.calls} == {"best"}


def test_a_scripted_curve_switches_at_exact_epochs():
    curve = [1.0, 0.5, 0.6, 0.4, 0.45, 0.41, 0.42] + [0.3] * 20
    fit = Scripted(curve)
    NeuralLifting("trunk", until=[Plateau(1, cap=50), Plateau(3, cap=50), Plateau(50, cap=9)])(task(), fit)
    assert fit.switches == [("base", 3), ("lifted", 7), ("project", 9)]


def test_one_rule_serves_all_phases_afresh():
    fit = Scripted([1.0, 1.0, 1.0, 1.0])
    NeuralLifting("trunk", until=Plateau(2, cap=50), cycles=2)(task(), fit)
    assert [epoch for _, epoch in fit.switches] == [3] * 6


def test_projection_is_always_reached_under_a_curve_that_improves_for_ever():
    fit = Scripted([1 / n for n in range(1, 100)])
    NeuralLifting("trunk", until=Plateau(5, cap=20))(task(), fit)
    assert fit.switches == [("base", 20), ("lifted", 20), ("project", 20)]


def test_a_whole_run_comes_back_plain_and_reports_the_deviation():
    model = task().model
    result = tl.fit(
        model,
        data(),
        data(32),
        recipe=NeuralLifting("trunk", kind="block"),
        loss="mse",
        epochs=6,
        progress=False,
    )
    assert list(result.model.state_dict()) == list(model.state_dict())
    assert not list(nodes(result.model))
    assert [row["phase"] for row in result.history] == ["base"] * 2 + ["lifted"] * 2 + ["project"] * 2
    lifted = [row for row in result.history if row["phase"] == "lifted"]
    assert all(row["deviation trunk"] > 0 for row in lifted)
    assert result.history[-1]["valid_loss"] < result.history[0]["valid_loss"]


def test_the_report_shows_what_each_cycle_gave(tmp_path):
    recipe = NeuralLifting("trunk", kind="block", cycles=2, complexity="rkhs")
    result = tl.fit(task().model, data(), data(32), recipe=recipe, loss="mse", epochs=6, progress=False)
    page = result.report(tmp_path / "run.html").read_text()
    assert "price of projection" in page
    assert "complexity gained" in page
    plain = tl.fit(task().model, data(), data(32), loss="mse", epochs=1, progress=False)
    assert "price of projection" not in plain.report(tmp_path / "plain.html").read_text()


def test_algorithm_one_leaves_the_head_to_phase_two():
    fits = {}

    def recipe(problem, fit):
        def spy(problem, **settings):
            fitted = fit(problem, **settings)
            fits[settings["name"]] = {n: p.detach().clone() for n, p in problem.named_parameters()}
            return fitted

        spy.batches, spy.using = fit.batches, partial(partial, spy)
        return NeuralLifting("trunk", kind="block", mix=1.0)(problem, spy)

    sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1)
    small = tl.fit(
        task().model, data(), recipe=recipe, loss="mse", epochs=6, optimizer=sgd, progress=False
    ).model
    assert_close(small.head.weight.detach(), fits["lifted"]["model.head.weight"], rtol=0, atol=0)
    assert not torch.equal(small.trunk.stem.weight, fits["lifted"]["model.trunk.inner.stem.weight"])


def test_cached_and_recomputed_targets_train_the_same_model():
    def run(augment):
        recipe = NeuralLifting("trunk", kind="block", init="xavier")
        return tl.fit(
            task().model,
            data(),
            recipe=recipe,
            loss="mse",
            epochs=6,
            augment=augment,
            batch_size=32,
            progress=False,
        )

    fixed, moving = run(None), run(lambda x, generator: x)
    for name, value in fixed.model.state_dict().items():
        assert_close(value, moving.model.state_dict()[name], rtol=1e-4, atol=1e-6)


def test_resumes_to_the_same_weights(tmp_path):
    def run(out, **settings):
        recipe = NeuralLifting("trunk", kind="block", init="xavier", cycles=2)
        return tl.fit(
            task().model,
            data(),
            data(32),
            recipe=recipe,
            loss="mse",
            epochs=6,
            out=out,
            progress=False,
            **settings,
        )

    whole = run(tmp_path / "whole")
    again = run(tmp_path / "whole", resume=True)
    assert_close(again.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    assert again.history == whole.history


def test_a_wrong_number_of_phases_raises():
    with pytest.raises(TorchliftError, match="one value per phase"):
        NeuralLifting("trunk", lrs=(0.1, 0.2))
    with pytest.raises(TorchliftError, match=r"tl.until.Epochs\(2\)"):
        NeuralLifting("trunk", until=2)
    with pytest.raises(TorchliftError, match="cycle"):
        NeuralLifting("trunk", cycles=0)
    with pytest.raises(TorchliftError, match="kind"):
        NeuralLifting("trunk", kind="cnn")


def test_index_and_features_reach_the_lifter():
    recipe = NeuralLifting("lstm", features=12, index=0, match="cosine", mix=(1.0, 0.0), until=Epochs(2))
    assert (recipe.lifter.features, recipe.lifter.index, recipe.lifter.match) == (12, 0, "cosine")
    assert recipe.lifter.mix == (1.0, 0.0)
