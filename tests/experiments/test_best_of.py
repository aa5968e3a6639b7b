"""BestOf: rungs, prices, own rates and optimizers, what fails is out, plain within the margin."""

import dataclasses
import math
import re
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Fit, Lift, Task
from torchlift.errors import TorchliftError
from torchlift.experiments import best_of
from torchlift.experiments.best_of import best_rates, slowed, suggestions
from torchlift.experiments.step_times import step_times
from torchlift.lifts import Normalize, Standardize
from torchlift.methods.recipe import OneLift, Recipe, as_recipe
from torchlift.optim import Muon, Soap
from torchlift.recipes import BestOf, MagnitudePruning, Rotated
from torchlift.train.run.checks import DryRun

SETTINGS = {"batch_size": 16, "progress": False, "optimizer": partial(torch.optim.Adam, lr=0.01), "seed": 3}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of ten steps do, and every step takes as long as any other."""
    monkeypatch.setattr(best_of, "LEAST", 10)
    monkeypatch.setattr(best_of, "step_times", lambda arms, *_: dict.fromkeys(arms, 1.0))


def data(n: int = 160) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def run(candidates, epochs: float = 20, **changes) -> tl.Result:
    recipe = BestOf(
        candidates, trials=0.4, **{k: changes.pop(k) for k in ("margin", "warm", "price") if k in changes}
    )
    return tl.fit(net(), data(), data(), recipe=recipe, epochs=epochs, **SETTINGS | changes)


def words(result: tl.Result) -> str:
    (row,) = [phase for phase in result.phases if phase["phase"] == "BestOf"]
    return row["what"][0]


def phases(result: tl.Result) -> list[str]:
    return list(dict.fromkeys(row["phase"] for row in result.history))


@dataclasses.dataclass(frozen=True)
class Breaks(Recipe):
    def __call__(self, task: Task, fit: Fit) -> Task:
        raise ZeroDivisionError("out of luck")


def test_what_fails_or_diverges_is_out_with_its_reason() -> None:
    wild = tl.Arm(optimizer=partial(torch.optim.SGD, lr=1e30))
    result = run({"wild": wild, "breaks": Breaks(), "hopeless": tl.lifts.Lifter("9")})
    said = words(result)
    assert "breaks out (out of luck)" in said
    assert "wild out (" in said
    assert "goes on with plain" in said
    assert "hopeless" not in said
    assert phases(result)[-1] == "plain: base"


def test_plain_training_that_diverges_is_out_too() -> None:
    wild = partial(torch.optim.SGD, lr=1e30)
    tame = tl.Arm(optimizer=partial(torch.optim.Adam, lr=0.01))
    assert "goes on with tame" in words(run({"tame": tame}, optimizer=wild))
    with pytest.raises(TorchliftError, match="no candidate left"):
        run({"wilder": tl.Arm(rate=10.0)}, optimizer=wild)


def test_each_candidate_has_its_rate_and_its_optimizer() -> None:
    result = run({"fast": tl.Arm(rate=3.0), "muon": tl.Arm(optimizer=partial(Muon, lr=0.02))})
    rates = {row["phase"]: row["lr"] for row in result.history}
    assert rates["trial 1 of plain: base"] == pytest.approx(0.01)
    assert rates["trial 1 of fast: base"] == pytest.approx(0.03)
    assert rates["trial 1 of muon: base"] == pytest.approx(0.02)


def test_plain_is_preferred_within_the_margin() -> None:
    better = {"fast": tl.Arm(rate=3.0)}
    assert "goes on with fast" in words(run(better, margin=0.0))
    assert "goes on with plain" in words(run(better, margin=0.9))


@pytest.mark.parametrize("recipe", [None, Standardize(), Normalize()], ids=repr)
def test_the_winner_goes_on_from_its_weights_with_a_new_optimizer(recipe: Lift | None) -> None:
    """Two parts of one training: the second starts with the weights of the first, at step one."""
    seen: list[Tensor] = []
    steps: list[int] = []

    base = as_recipe(recipe)

    class Watched(type(base)):
        def start(self, task, fit):
            started = super().start(task, fit)
            seen.append(first_weight(started.task))
            return started

        def resume(self, started, fit):
            seen.append(first_weight(started.task))
            going = super().resume(started, fit)
            seen.append(first_weight(going.task))
            return going

    watched = Watched(**vars(base))

    class Counting(torch.optim.Adam):
        def step(self, closure=None):
            if not self.state:
                steps.append(0)
            steps[-1] += 1
            return super().step(closure)

    run({"watched": tl.Arm(watched, optimizer=partial(Counting, lr=0.02))}, margin=0.0)
    parts = [count for count in steps if count > 2]  # two steps are taken to price a fit
    assert parts == pytest.approx([0.2 * 200, 0.6 * 200], abs=3)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def first_weight(task) -> Tensor:
    return next(task.parameters()).detach().clone()


def test_centered_coordinates_are_centered_anew_where_they_are_carried_on() -> None:
    """The means are those of inputs at the weights reached, not at the first ones."""
    means: list[Tensor] = []

    class Watched(OneLift):
        def train(self, lifted, fit):
            means.append([b for n, b in lifted.named_buffers() if "mean" in n][-1].clone())
            return super().train(lifted, fit)

    run({"watched": tl.Arm(Watched(Standardize()), rate=3.0)}, margin=0.0)
    assert len(means) == 2
    assert not torch.allclose(*means)


def test_every_run_goes_through_the_whole_schedule() -> None:
    """Eight epochs of trials for two, then twelve: what is compared is annealed."""
    result = run({"slow": tl.Arm(rate=0.01)}, schedule="cosine")
    rates = [row["lr"] for row in result.history if "slow" not in row["phase"]]
    ends = [(number + 1) / 4 for number in range(4)] + [(number + 1) / 12 for number in range(12)]
    assert rates == pytest.approx([0.005 * (1 + math.cos(math.pi * end)) for end in ends], abs=4e-4)


@pytest.mark.parametrize(
    ("count", "counts"), [(2, [2]), (4, [4]), (5, [5, 2]), (9, [9, 3]), (12, [12, 4]), (13, [13, 5, 2])]
)
def test_rungs_keep_a_third(count: int, counts: list[int]) -> None:
    assert BestOf().rungs(count) == counts
    assert BestOf(warm=False).rungs(count) == counts[:2]


@pytest.mark.parametrize(("trials", "finalists"), [(0.4, 1), (0.75, 2), (6 / 7, 3)])
def test_what_trials_pay_for_is_spent(trials: float, finalists: int) -> None:
    """Two rungs and whole runs, the last run among them, cost the budget."""
    tuning = BestOf(trials=trials, warm=False)
    assert tuning.finalists(2) == finalists
    assert 2 * 9 * tuning.first_share(9) + finalists * (1 - trials) == pytest.approx(1)
    assert BestOf(trials=trials).finalists(2) == tuning.finalists(1) == 1


def test_from_the_first_weights_whole_runs_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five candidates, two kinds of them, then the best, half its rate and the other; one is delivered."""
    monkeypatch.setattr(best_of, "SHORTEST", 1 / 50)
    names = {name: tl.Arm(rate=rate) for name, rate in zip("abc", (0.001, 0.1, 0.4), strict=True)}
    names["muon"] = tl.Arm(optimizer=partial(Muon, lr=0.02))
    recipe = BestOf(names, trials=6 / 7, warm=False, margin=0.0)
    result = tl.fit(net(), data(), data(), recipe=recipe, epochs=42, **SETTINGS)
    said = words(result)
    tried = [re.findall(r"([^:;,]+(?:, rate / 2)?) ([0-9.e+-]+)(?:, |$)", rung) for rung in rung_scores(said)]
    assert [len(rung) for rung in tried] == [5, 2, 3]
    best = tried[1][0][0]
    assert {name.strip() for name, _ in tried[1]} == {"plain", "muon"}
    assert {name.strip() for name, _ in tried[2]} == {"plain", "muon", f"{best}, rate / 2"}
    assert f"goes on with {tried[2][0][0]} " in said
    assert result.scores["valid"].loss == pytest.approx(float(tried[2][0][1]), rel=1e-3)


def rung_scores(said: str) -> list[str]:
    return re.findall(r"losses of rung \d: ([^;]*)", said)


def test_of_the_same_arm_at_several_rates_the_best_goes_on() -> None:
    slow, fast = (tl.Arm(optimizer=partial(Muon, lr=lr)) for lr in (0.01, 0.02))
    arms = {"slow": slow, "norm": tl.Arm(Normalize()), "fast": fast}
    assert best_rates(["fast", "slow", "norm"], arms) == ["fast", "norm"]
    assert slowed(tl.Arm(Normalize(), rate=3.0)) == tl.Arm(Normalize(), rate=1.5)


def test_the_best_of_a_rung_meet_again_on_longer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_of, "SHORTEST", 1 / 20)
    rates = {f"rate {rate}": tl.Arm(rate=rate) for rate in (0.001, 0.01, 2.0, 3.0)}
    result = run(rates, margin=0.0, epochs=40)
    first, second = (
        {
            name.partition(" of ")[2]: rows
            for name, rows in epochs(result).items()
            if name.startswith(f"trial {rung}")
        }
        for rung in (1, 2)
    )
    assert len(first) == 5
    assert len(second) == 2
    assert "rate 0.001: base" not in second
    assert min(second.values()) > max(first.values())


def epochs(result: tl.Result) -> dict[str, int]:
    steps: dict[str, int] = {}
    for row in result.history:
        steps[row["phase"]] = row["step"]
    return steps


def test_a_dear_step_is_taken_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"plain": 1.0, "dear": 2.0, "cheap": 0.5}
    monkeypatch.setattr(best_of, "step_times", lambda arms, *_: {name: times[name] for name in arms})
    steps = epochs(run({"dear": tl.Arm(), "cheap": tl.Arm(rate=3.0)}, margin=0.0))
    plain = steps["trial 1 of plain: base"]
    assert steps["trial 1 of dear: base"] == pytest.approx(plain / 2, abs=1)
    assert steps["trial 1 of cheap: base"] == pytest.approx(plain * 2, abs=1)


def test_flops_are_the_price_of_a_run_at_equal_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_of, "step_times", None)
    said = words(run({"muon": tl.Arm(optimizer=Muon)}, equal_cost=True))
    assert "of a step" not in said


def test_flops_repeat_where_epochs_are_passes() -> None:
    said = words(run({"muon": tl.Arm(optimizer=Muon), "fast": tl.Arm(rate=3.0)}, price="FLOPs"))
    (dear,) = re.findall(r"FLOPs of a step to plain's: muon ([0-9.]+)", said)
    assert float(dear) > 1


def test_a_step_that_does_more_takes_longer() -> None:
    task = tl.Task(
        nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 2))
    )

    arms = {"plain": tl.Arm(), "soap": tl.Arm(optimizer=partial(Soap, every=1))}
    seconds = step_times(arms, task, DryRun(data(), 16), rounds=3)
    assert seconds["soap"] > 2 * seconds["plain"] > 0


def test_arms_that_differ_in_rates_alone_have_one_price() -> None:
    rates = {f"muon {lr}": tl.Arm(optimizer=partial(Muon, lr=lr)) for lr in (0.01, 0.03)}
    arms = {"plain": tl.Arm(), "fast": tl.Arm(rate=3.0), **rates, "normed": tl.Arm(Normalize())}
    seconds = step_times(arms, tl.Task(net()), DryRun(data(), 16), rounds=2)
    assert seconds["plain"] == seconds["fast"]
    assert seconds["muon 0.01"] == seconds["muon 0.03"]
    assert len(set(seconds.values())) == 3


def test_without_warm_the_last_run_starts_from_the_first_weights() -> None:
    seen: list[Tensor] = []

    @dataclasses.dataclass(frozen=True)
    class Watched(Recipe):
        def __call__(self, task: Task, fit: Fit) -> Task:
            seen.append(first_weight(task))
            fit(task)
            return task

    run({"watched": tl.Arm(Watched(), rate=3.0)}, margin=0.0, warm=False)
    assert len(seen) == 2
    assert torch.equal(*seen)


def test_a_staged_recipe_goes_on_with_its_later_stages_and_a_whole_one_starts_again() -> None:
    candidates = {"rotated": tl.Arm(Rotated(), rate=4.0), "pruned": MagnitudePruning(sparsity=0.5)}
    shown = phases(run(candidates, margin=0.0))
    assert [name for name in shown if name.startswith("trial 1 of rotated")] == [
        "trial 1 of rotated: lifted 1"
    ]
    assert [name for name in shown if name.startswith("rotated")] == [
        f"rotated: lifted {stage}" for stage in (1, 2, 3)
    ]
    alone = phases(run({"pruned": tl.Arm(MagnitudePruning(sparsity=0.5), rate=3.0)}, margin=0.0))
    parts = [name.removeprefix("trial 1 of ") for name in alone if "pruned" in name]
    assert parts[: len(parts) // 2] == parts[len(parts) // 2 :]


def test_the_last_candidates_wait_where_the_budget_is_small() -> None:
    said = words(run({"one": tl.Arm(rate=2.0), "two": tl.Arm(rate=3.0)}, epochs=6))
    assert re.search("rung 1: .*one [0-9]", said)
    assert said.endswith("no budget to try two")
    assert BestOf(trials=0.8).affordable(200) == 8  # two rungs of 80 steps, 10 each


def test_no_trial_is_shorter_than_a_tenth_of_the_last_run() -> None:
    """A quarter of the budget is three trials of a twelfth, however many steps there are."""
    assert BestOf().affordable(1_000_000) == 3
    assert BestOf(trials=0.75).affordable(1_000_000) == 12  # of 13, in three rungs, a trial would be a 52nd


def test_the_price_is_that_of_batches_as_steps_take_them() -> None:
    """Not of the large ones that data are looked at in."""
    seen: list[int] = []

    class Counting(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            seen.append(len(input))
            return super().forward(input)

    step_times({"plain": tl.Arm()}, tl.Task(Counting(6, 2)), DryRun(data(), 16), rounds=1)
    assert set(seen) == {16}
    fit_batches: list[int] = []

    @dataclasses.dataclass(frozen=True)
    class Looks(Recipe):
        def __call__(self, task: Task, fit: Fit) -> Task:
            fit_batches.append(len(fit.example()[0]))
            return task

    tl.fit(net(), data(), recipe=Looks(), epochs=1, **SETTINGS)
    assert fit_batches == [16]


def test_it_resumes_bit_for_bit(tmp_path) -> None:
    candidates = {
        "muon": tl.Arm(optimizer=partial(Muon, lr=0.02)),
        "breaks": Breaks(),
        "centered": Standardize(),
    }
    run_ = partial(run, candidates, epochs=30)
    whole = run_()
    for stop_at in (4, 20):
        rows: list[object] = []

        def stop(row, rows=rows, stop_at=stop_at) -> None:
            rows.append(row)
            if len(rows) == stop_at:
                raise KeyboardInterrupt

        out = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            run_(out=out, save_every=0.0, listener=stop)
        again = run_(out=out, resume=True)
        assert words(again) == words(whole)
        for one, two in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("layer", "first"),
    [
        (nn.ReLU(), ["norm", "Muon"]),
        (nn.Conv1d(4, 4, 1), ["whitened, norm, Muon", "norm, Muon"]),
        (nn.BatchNorm1d(4), ["Muon", "Muon, rate × 3"]),
        (nn.LayerNorm(4), ["Muon", "Muon, rate × 3"]),
        (nn.LSTM(4, 4), ["Muon", "Muon, rate × 3"]),
    ],
)
def test_what_is_tried_first_depends_on_the_kind_of_network(layer: nn.Module, first: list[str]) -> None:
    actual = suggestions(nn.Sequential(nn.Linear(4, 4), layer))
    assert list(actual)[:2] == first
    assert {"Muon", "SOAP", "rate × 3", "rate / 3"} <= set(actual)
    normless = not isinstance(layer, (nn.BatchNorm1d, nn.LayerNorm, nn.LSTM))
    assert ("norm" in actual) == normless


def test_every_suggestion_for_pictures_delivers_the_given_network() -> None:
    """Whitened inside a norm, and coarse to fine inside it, are folded away."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    ]
    model = nn.Sequential(*layers)
    x = torch.randn(64, 1, 8, 8)
    pictures = (x, (x.mean((1, 2, 3)) > 0).long())
    for arm in suggestions(model).values():
        result = tl.fit(model, pictures, epochs=1, batch_size=32, progress=False, **arm.merged({}))
        assert [type(one) for one in result.model] == [type(one) for one in model]
