"""auto: the budget is kept, what is delivered is what is measured, nobody can take the search down."""

import concurrent.futures
import dataclasses
import errno
import itertools
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from experiments.small import DATA, SETTINGS, Broken, model
from torchlift.core import Fit
from torchlift.deploy.measuring import file_size, latencies
from torchlift.errors import CheckpointError, DivergedError, InUseError, TorchliftError
from torchlift.experiments import auto_search
from torchlift.experiments.arm import CopyOf, Setup
from torchlift.experiments.candidates import portfolio
from torchlift.experiments.compressing import Compressing
from torchlift.experiments.constraints import (
    Constraints,
    Delivered,
    choose,
    dominates,
    front,
    next_rung_order,
    superseding,
)
from torchlift.experiments.delivery import Continued, Delivery, OutOfTimeError
from torchlift.experiments.halving import ETA, LAST, plan_rungs, promoted
from torchlift.experiments.ledger import Ledger
from torchlift.experiments.onward import rest_of
from torchlift.experiments.step_times import differ_in_rates
from torchlift.methods import Recipe
from torchlift.train.checkpoint import load_checkpoint
from torchlift.train.run.labels import folder_name

TRAIN, VALID, TEST = DATA
CANDIDATES = {
    "bits": tl.recipes.Smol(bits=3.0),
    "broken": Broken(),
    "not accepted": tl.recipes.NeuralLifting("nothing here"),
    "chain": tl.recipes.Chain({"norm": tl.lifts.Normalize(), "bits": tl.recipes.Smol(bits=3.0)}),
}


def searched(**more: object) -> tl.AutoResult:
    torch.manual_seed(0)
    settings = {"budget": 30.0, "candidates": CANDIDATES, "test": TEST} | SETTINGS | more
    settings.pop("progress")
    return tl.auto(settings.pop("model", None) or model(), TRAIN, VALID, **settings)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tl.AutoResult:
    return searched(out=tmp_path_factory.mktemp("auto"))


def test_the_budget_is_kept_and_spent(result: tl.AutoResult) -> None:
    assert 0.8 * 30 < result.spent <= 30 * 1.0001
    assert result.spent == pytest.approx(sum(row.cost for row in result.rows))


def test_who_fails_or_raises_is_dropped_with_the_reason(result: tl.AutoResult) -> None:
    assert result.dropped["broken"] == "KeyError: 'what is this'"
    assert "matches nothing" in result.dropped["not accepted"]
    assert set(result.dropped) == {"broken", "not accepted"}


def test_plain_is_in_every_rung_and_longer_in_each(result: tl.AutoResult) -> None:
    trials = [row for row in result.rows if not row.final]
    plain = [row for row in trials if row.name == "plain"]
    last = max(row.rung for row in trials)
    assert {row.rung for row in plain} == set(range(last + 1))
    lengths = {row.rung: row.epochs for row in plain}
    assert all(lengths[k + 1] == pytest.approx(ETA * lengths[k]) for k in range(last))


def test_what_is_delivered_is_the_file_that_was_measured(result: tl.AutoResult) -> None:
    for row in result.front:
        path = result.folder / "models" / row.file
        assert path.stat().st_size == row.bytes
        loaded = result.load(row)
        with torch.no_grad():
            right = (loaded(VALID[0]).argmax(1) == VALID[1]).float().mean()
        assert float(right) == pytest.approx(row.metric)
    assert result.file.read_bytes() == (result.folder / "models" / result.chosen.file).read_bytes()
    assert {"model.tl", "card.json", "report.html"} <= {path.name for path in result.folder.iterdir()}
    assert tl.predict(result.folder, VALID[0][:3]) is not None
    assert result.chosen in result.rows


def test_half_of_the_budget_trains_the_winner_on_from_its_trial(result: tl.AutoResult) -> None:
    (final,) = [row for row in result.rows if row.final]
    assert final.cost >= 0.5 * 30
    trial = result.trial
    assert trial is not None
    assert (trial.name, trial.rate) == (final.name, final.rate)
    reached = load_checkpoint(result.folder / "runs" / folder_name(trial.key) / "model.safetensors")
    started = Continued(
        result.setup.make_model, result.folder / "runs" / folder_name(trial.key) / "model.safetensors"
    )
    assert all(torch.equal(started().model.state_dict()[name], reached[name]) for name in reached)


def test_a_winner_that_was_cut_is_trained_on_as_it_was_cut(tmp_path: Path) -> None:
    """Its channels are not chosen again: what is left is the bits."""
    chain = tl.recipes.Chain(tl.recipes.ChannelPruning(ratio=0.5), tl.recipes.Smol(bits=3.0))
    wide = nn.Sequential(nn.Linear(6, 96), nn.ReLU(), nn.Linear(96, 2))
    result = searched(
        model=wide, out=tmp_path, budget=10.0, bytes=1200, candidates={"channels → bits": chain}
    )
    final, trial = next(row for row in result.rows if row.final), result.trial
    assert final.name == "channels → bits"
    assert trial is not None
    assert not final.reason
    assert final.cost >= 5.0
    assert final.cost + sum(row.cost for row in result.rows if not row.final) <= 10.0 * 1.0001
    assert width(result.load(final)) <= width(result.load(trial)) <= 48
    assert final.stages == (), "one stage: the chain's last"


@dataclasses.dataclass(frozen=True)
class OnlyFresh(Recipe):
    """Plain training that diverges after an epoch where the weights are trained already."""

    def __call__(self, task: tl.Task, fit: Fit) -> tl.Task:
        trained = any(bool((weight != fresh).any()) for weight, fresh in zip(
            task.model.parameters(), first_weights().parameters(), strict=True
        ))  # fmt: skip
        fit(task, name="first", epochs=1)
        if trained:
            raise DivergedError("the objective is nan.")
        fit(task, name="rest")
        return task


def first_weights() -> nn.Module:
    torch.manual_seed(0)
    return model()


def test_a_winner_that_fails_when_it_is_trained_on_starts_again(tmp_path: Path) -> None:
    """And the budget is kept: what the failed run has cost is in the account."""
    only = {"fresh": tl.Arm(OnlyFresh(), rate=1.5)}
    result = searched(out=tmp_path, budget=12.0, candidates=only, accuracy=0.0, bytes=10**6)
    failed, again = [row for row in result.rows if row.final]
    assert failed.reason.startswith("the objective is nan.")
    assert failed.cost == pytest.approx(1.0)
    assert not again.reason
    assert again.key.endswith("from the start")
    assert again.cost > 2
    assert result.spent <= 12.0 * 1.0001
    assert [essence(row) for row in searched(
        out=tmp_path, budget=12.0, candidates=only, accuracy=0.0, bytes=10**6, resume=True
    ).rows] == [essence(row) for row in result.rows]  # fmt: skip


def width(module: nn.Module) -> int:
    return len(module.state_dict()["0.bias"])


def test_zeros_of_a_grid_are_free_when_the_winner_is_trained_on(
    result: tl.AutoResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They would stay zero for good: the recipe finds its own again."""
    runs: list[dict[str, object]] = []
    monkeypatch.setattr(Setup, "run", lambda *_, **own: runs.append(own))
    row, arm = result.rows[0], tl.Arm()
    one = Delivery(row, result.setup, arm, 0, tmp_path, tmp_path / "m.tl")
    one.trained()
    dataclasses.replace(one, start=tmp_path / "weights").trained()
    assert [own.get("keep_zeros", True) for own in runs] == [True, False]


def test_splits_give_all_parts_and_the_names_of_classes(tmp_path: Path) -> None:
    splits = tl.data.iris(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    result = tl.auto(net, splits, candidates={}, budget=4, batch_size=32, out=tmp_path)
    assert result.chosen.test is not None
    assert set(tl.predict(tmp_path, splits.test[0].numpy(), card=card_of(tmp_path)).labels) <= set(
        splits.schema["classes"]
    )
    with pytest.raises(TorchliftError, match="validation data"):
        tl.auto(net, splits.train, budget=4)


def card_of(folder: Path) -> dict[str, object]:
    """The card, for inputs that are standardized already."""
    card = json.loads((folder / "card.json").read_text())
    assert card["output"]["classes"] == ["setosa", "versicolor", "virginica"]
    return card | {"input": {}}


def test_what_is_left_of_a_recipe_after_its_cut() -> None:
    r = tl.recipes
    bits = r.Smol(bits=2.0)
    assert rest_of(r.Chain(r.ChannelPruning(ratio=0.5), bits)) is bits
    assert rest_of(r.ChannelPruning(ratio=0.5)) == r.Plain()
    norm = tl.lifts.Normalize()
    assert rest_of(r.Chain(norm, r.ChannelPruning(ratio=0.5), bits)) == r.Chain(norm, bits)
    both = tl.chain(norm, tl.lifts.Whitened())
    assert rest_of(r.Chain(both, r.ChannelPruning(ratio=0.5), bits)) is None, "its kernels are drawn anew"
    assert rest_of(r.Chain(lambda task, fit: task, r.ChannelPruning(ratio=0.5), bits)) is None
    assert rest_of(r.Inside(tl.lifts.Normalize(), r.Chain(r.ChannelPruning(ratio=0.5), bits))) is None


def test_half_of_the_minutes_are_planned_for_the_winner() -> None:
    planned = auto_search.CAUTION * (1 - auto_search.RESERVE - auto_search.SEARCH_TIME)
    assert planned >= 0.5 - 1e-9


def test_under_a_limit_on_the_file_the_winner_has_three_quarters(
    result: tl.AutoResult, tmp_path: Path
) -> None:
    """Of a long budget; of a short one, trials have five epochs, and half at most."""

    def trials(budget: float, **limits: float) -> float:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        search = auto_search.AutoSearch(
            result.setup, {}, Constraints(**limits), 0, 0, tmp_path, ledger, None, 1, 0.0, budget, None
        )
        return search.trial_epochs

    assert [trials(b, bytes=900) for b in (40, 15, 8)] == [10, 5, 4]
    assert [trials(b) for b in (40, 15, 8)] == [20, 7.5, 4]
    plans = [plan_rungs(trials(budget, bytes=900), 9, 1 / auto_search.FEW) for budget in (400, 40, 21, 15, 8)]
    assert [[rung.runs for rung in rungs] for rungs in plans] == [[5], [5], [5], [5], [4]]


@pytest.mark.parametrize(
    "net", [tl.models.LeNet5, partial(tl.models.MLP, 64, 32, 10), partial(tl.models.GPT, 50)]
)
@pytest.mark.parametrize("size", [None, 20_000])
def test_no_arm_is_tried_twice(net: Callable[[], nn.Module], size: int | None) -> None:
    """Rates are searched: an arm that differs from another in its rates alone is that arm."""
    arms = portfolio(tl.Task(net(), "cross_entropy"), Constraints(bytes=size))
    assert not [pair for pair in itertools.combinations(arms, 2) if differ_in_rates(*(arms[n] for n in pair))]


def test_the_table_shows_plain_training_at_the_cost_of_the_trial(result: tl.AutoResult) -> None:
    assert result.trial is not None
    assert result.plain is not None
    assert result.plain.epochs == result.trial.epochs
    assert result.plain.key in result.table()
    assert result.table().count("▸") == 1
    assert result.chosen in result.front


def test_the_same_search_chooses_the_same_whatever_the_clock_says(
    result: tl.AutoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latency is noise unless it is a constraint."""
    ticks = iter(torch.rand(100_000, generator=torch.Generator().manual_seed(0)).tolist())
    monkeypatch.setattr(
        "torchlift.experiments.delivery.latencies", lambda models, *_: [next(ticks)] * len(models)
    )
    again = searched()
    assert [essence(row) for row in again.rows] == [essence(row) for row in result.rows]
    assert again.chosen.key == result.chosen.key
    assert [row.key for row in again.front] == [row.key for row in result.front]


def test_latency_as_a_constraint_is_measured_in_turn_with_the_incumbent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine that gets slower with every measurement, models that take the same time are told so."""
    calls = list[int]()

    def slower(models: list[nn.Module], *_: object) -> list[float]:
        calls.append(len(models))
        return [1e-3 * len(calls)] * len(models)

    monkeypatch.setattr("torchlift.experiments.delivery.latencies", slower)
    rows = searched(latency=5.0, budget=8.0, candidates={}).rows
    assert calls[0] == 1
    assert set(calls[1:]) == {2}
    assert {row.latency_ms for row in rows} == {1.0}


def test_a_plain_model_is_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl.deploy, "shrink", lambda *args: pytest.fail("it has no zeros"))
    assert not any(row.reason for row in searched(budget=4.0, candidates={}).rows)


def test_a_fault_of_the_machine_is_no_result(tmp_path: Path) -> None:
    """A search that ran out of memory or disk goes on, once there is room, to the end it would have had."""
    settings = {"out": tmp_path, "budget": 8.0}
    for error in (
        OSError(28, "No space left on device"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: no"),
        InUseError("the folder is in use"),
    ):
        Failing.error = error
        with pytest.raises(type(error)):
            searched(**settings, candidates={"failing": Failing()}, resume=True)
    Failing.error = None
    again = searched(**settings, candidates={"failing": Failing()}, resume=True)
    assert not any(row.reason for row in again.rows)
    whole = searched(budget=8.0, candidates={"failing": Failing()})
    assert [essence(row) for row in again.rows] == [essence(row) for row in whole.rows]


@dataclasses.dataclass(frozen=True)
class Failing(Recipe):
    """Plain training on a machine that may fail."""

    error: ClassVar[BaseException | None] = None

    def __call__(self, task: tl.Task, fit: Fit) -> tl.Task:
        if Failing.error is not None:
            raise Failing.error
        fit(task)
        return task


def test_a_disk_without_room_for_the_page_is_told(
    result: tl.AutoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_page: object, path: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("torchlift.report.write", full)
    with pytest.raises(CheckpointError, match=os.strerror(errno.ENOSPC)):
        result.saved()


def test_the_front_holds_all_that_nobody_beats(result: tl.AutoResult) -> None:
    ended = [row for row in result.rows if not row.reason and row.rung >= 0]
    good = superseding(ended, result.constraints, len(VALID[0]))
    for row in good:
        beaten = any(dominates(other, row, result.constraints) for other in good)
        assert beaten != (row in result.front)


def test_the_page_explains_the_choice_and_the_table_names_it(result: tl.AutoResult, tmp_path: Path) -> None:
    page = result.report(tmp_path / "page.html").read_text()
    for words in (result.chosen.name, "broken", "what is this", "Front"):
        assert words in page
    if result.chosen.name != "plain":
        assert "plain epochs had a validation metric of" in page
    table = result.table()
    assert f"▸ {result.chosen.key}" in table
    for reason in set(result.dropped.values()):  # one line for all of them
        alike = [name for name in result.dropped if result.dropped[name] == reason]
        assert table.count(f"dropped {'; '.join(alike)}: {reason}") == 1
    assert json.loads((result.folder / "auto.json").read_text())["why"] == result.why


def test_a_chains_stages_are_told(result: tl.AutoResult) -> None:
    chain = next(row for row in result.rows if row.name == "chain" and row.final)
    assert [stage["stage"] for stage in chain.stages] == ["norm", "bits"]
    first, second = chain.stages
    assert 0 < first["cost"] < second["cost"] <= chain.epochs * 1.0001
    assert second["file_bytes"] < first["file_bytes"]


def test_a_search_that_is_done_is_only_read(result: tl.AutoResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_search, "run_job", lambda trial: pytest.fail("it trains again"))
    again = searched(out=result.folder, resume=True)
    assert repr(again.rows) == repr(result.rows)
    assert again.chosen == result.chosen
    with pytest.raises(CheckpointError, match="budget"):
        searched(out=result.folder, resume=True, budget=31.0)


def test_a_search_that_was_stopped_goes_on_to_the_same_end(
    result: tl.AutoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = auto_search.run_job, list[str]()

    def dying(trial: Delivery) -> Delivered:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(trial.row.key)
        return real(trial)

    monkeypatch.setattr(auto_search, "run_job", dying)
    with pytest.raises(KeyboardInterrupt):
        searched(out=tmp_path / "a")
    monkeypatch.setattr(auto_search, "run_job", real)
    again = searched(out=tmp_path / "a", resume=True)
    assert [essence(row) for row in again.rows] == [essence(row) for row in result.rows]
    assert again.chosen.key == result.chosen.key


def test_an_executor_finds_the_same(tmp_path: Path) -> None:
    few = {"budget": 8.0, "candidates": {"bits": tl.recipes.Smol(bits=3.0)}}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        shared = searched(executor=pool, out=tmp_path / "shared", **few)
    alone = searched(out=tmp_path / "alone", **few)
    kept = {point(row) for row in alone.rows} & {point(row) for row in shared.rows}
    assert len(kept) >= 3, "all but what Optuna draws"
    for row in shared.rows:
        twin = next((other for other in alone.rows if point(other) == point(row)), row)
        assert essence(row) == essence(twin)


def test_a_trial_that_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_search.AutoSearch, "share", lambda *args: (1.0, 0.99, 1.0))
    result = searched(minutes=0.2, budget=None, candidates={"bits": "smol"})
    assert result.dropped == {"bits": "no time was left for it."}
    assert result.chosen.name == "plain"


def essence(row: Delivered) -> tuple[object, ...]:
    """What does not depend on the machine."""
    return row.key, row.epochs, row.cost, row.bytes, row.reason, str(row.metric)


def point(row: Delivered) -> tuple[str, float, int]:
    return row.name, row.rate, row.rung


def test_minutes_end_a_trial_after_its_epoch(tmp_path: Path) -> None:
    setup = Setup(CopyOf(model()), (TRAIN, VALID, None), SETTINGS)
    row = Delivered("k", "plain", "", 0, 1.0, 3.0, 0.0, 0.0)
    trial = Delivery(row, setup, tl.Arm(), 0, tmp_path / "run", tmp_path / "file", deadline=0.0)
    with pytest.raises(OutOfTimeError, match="out of time in 'base', epoch 1"):
        trial.trained()
    assert trial().reason == "out of time in 'base', epoch 1."


def test_minutes_are_planned_from_the_speed_of_plain_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still: all of the plan is carried out."""
    monkeypatch.setattr("torchlift.experiments.auto_search.time.time", lambda: 0.0)
    result = searched(minutes=0.05, budget=None, candidates={"bits": tl.recipes.Smol(bits=3.0)})
    assert result.unit == "minutes"
    assert {row.rung for row in result.rows} > {-2, -1, 0}
    assert result.chosen.rung >= 0


def test_a_model_that_is_no_package_class_is_delivered_all_the_same() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) * 2

    result = searched(model=Mine(), budget=6.0, candidates={})
    assert result.chosen.packed.startswith("deploy.load(file")
    assert result.model(VALID[0]).shape == (96, 2)


def test_wrong_arguments_are_one_line_each() -> None:
    for wrong, message in (
        ({"budget": 3.0, "minutes": 1.0}, "give one budget"),
        ({"budget": -1.0}, "the budget is above 0"),
        ({"budget": 0.5}, "at least, got 0.5"),
        ({"bytes": 0}, "bytes is the most"),
        ({"candidates": {"x": "smoll"}}, "did you mean 'smol'"),
    ):
        with pytest.raises(TorchliftError, match=message):
            searched(**wrong)


def row(metric: float, size: int, latency: float = 1.0, name: str = "other", rung: int = 0) -> Delivered:
    key = f"{name} {metric} {size} {latency}"
    return Delivered(key, name, "", rung, 1.0, 1.0, 1.0, 1.0, metric, size, latency)


def test_a_winner_supersedes_its_trials_unless_these_are_clearly_better() -> None:
    trial, other = row(0.97, 300, name="bits"), row(0.96, 200)
    final = dataclasses.replace(row(0.965, 310, name="bits"), final=True)
    assert superseding([trial, other, final], Constraints(), 180) == [other, final]
    assert superseding([trial, other, final], Constraints(), 10**6) == [trial, other, final]
    assert trial in superseding([trial, final], Constraints(bytes=305), 180), (
        "the longer run missed the limit"
    )
    assert superseding([trial, other], Constraints(), 180) == [trial, other]


def test_what_constraints_take() -> None:
    big, mid, tiny = row(0.90, 1000, 3.0), row(0.899, 300, 2.0), row(0.7, 50, 1.0)
    rows = [big, mid, tiny]
    pick = partial(choose, rows, samples=100)
    assert pick(Constraints())[0] is mid, "above the lower bound (0.855), the smaller file"
    assert choose(rows, Constraints(), 10**8)[0] is big
    assert choose([big, row(0.899, 900, 2.0)], Constraints(), 100)[0] is big, "not for a tenth of the file"
    assert choose([*rows, row(0.9, 310)], Constraints(), 100)[0].bytes == 310, "of two alike, the better"
    assert pick(Constraints(bytes=100))[0] is tiny
    assert pick(Constraints(accuracy=0.8))[0] is mid
    assert pick(Constraints(latency=2.5))[0] is mid
    nearest, why = pick(Constraints(bytes=10, accuracy=0.95))
    assert nearest is tiny or nearest is mid or nearest is big
    assert "No model meets" in why
    sure, light = row(1.0, 3640), row(1 - 1 / 360, 959)
    assert choose([sure, light], Constraints(), 360)[0] is light, "at 1.0 there is an error too"
    low = [row(3.0, 10), row(1.0, 20)]
    assert choose(low, Constraints(higher_is_better=False), 0)[0] is low[1]
    assert Constraints(accuracy=2.0, higher_is_better=False).misses(low[0]) == {"accuracy": 0.5}


def test_who_goes_on() -> None:
    rows = [row(0.9, 1000, name="plain"), row(0.95, 900), row(0.5, 100), row(0.6, 5000), row(0.8, 200)]
    assert promoted(rows, 2, Constraints(bytes=300), "plain") == [rows[0], rows[4]]
    assert next_rung_order(rows, Constraints())[:3] == [rows[1], rows[4], rows[2]], (
        "the first front, by the metric"
    )
    failed = row(1.0, 1)
    assert failed not in promoted(
        [*rows, Delivered(**vars(failed) | {"reason": "no"})], 9, Constraints(), "plain"
    )


@given(st.floats(2.0, 1e4), st.integers(1, 30), st.floats(0.0, 3.0))
def test_a_plan_spends_the_budget(budget: float, points: int, overhead: float) -> None:
    rungs = plan_rungs(budget, points, overhead=overhead)
    least = LAST * (max(1, overhead / 2) + overhead)
    assert sum(r.runs * (r.epochs + overhead) for r in rungs) <= max(budget, least) * 1.0001
    assert rungs[0].epochs >= 1
    for one, two in itertools.pairwise(rungs):
        assert two.epochs == pytest.approx(ETA * one.epochs)
        assert two.runs <= one.runs


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=8))
def test_fronts_are_fronts(numbers: list[tuple[int, int, int]]) -> None:
    rows = [row(float(m), b, float(ms)) for m, b, ms in numbers]
    kept = front(rows, Constraints())
    assert kept
    assert not any(dominates(a, b, Constraints()) for a in kept for b in kept)


HARMS = {
    "half a line": lambda text: text[:-5],
    "nothing left": lambda text: b"",
    "a line edited": lambda text: text.replace(b"plain", b"plane", 1),
    "no JSON": lambda text: b"what is this\n" + text,
    "no record": lambda text: text + b"[1, 2]\n",
    "another record": lambda text: text + b'{"kind": "trial", "metric": 1.0}\n',
    "no text": lambda text: text + b"\xff\xfe\x00\n",
    "nested": lambda text: text + b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_ledger_is_mended_or_one_line(tmp_path: Path, harm: str) -> None:
    few = {"out": tmp_path, "budget": 4.0, "candidates": {}}
    rows = [essence(row) for row in searched(**few).rows]
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(HARMS[harm](path.read_bytes()))
    if harm in ("half a line", "nothing left"):
        assert [essence(row) for row in searched(**few, resume=True).rows] == rows
    else:
        with pytest.raises(CheckpointError, match=r"^[^\n]*ledger.jsonl is damaged, or of[^\n]*$"):
            searched(**few, resume=True)


def test_channels_norms_and_compression_are_candidates() -> None:
    task = tl.Task(model(), "cross_entropy")
    names = list(portfolio(task, Constraints(bytes=900)))
    assert names[0] == "plain"
    assert {"norm → channels → bits", "norm → compressed", "norm → bits", "channels → bits"} <= set(names[:6])
    compressed = {"compressed": portfolio(task, Constraints(bytes=900))["compressed"]}
    result = searched(budget=4.0, bytes=900, candidates=compressed)
    row = next(row for row in result.rows if row.name == "compressed")
    assert not row.reason
    assert row.bytes <= 900


def test_a_size_that_compress_does_not_find_is_met_with_fewer_channels() -> None:
    """A long run must not be lost because its weights take some bytes more."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).eval()
    least = 0
    for size in range(3000, 400, -50):
        try:
            tl.compress(net, TRAIN[0], bytes=size, progress=False)
        except TorchliftError:
            least = size
            break
    assert least
    small = Compressing(bytes=least).compressed(net, TRAIN[0])
    assert file_size(small) <= least
    with pytest.raises(TorchliftError, match="bytes=10 is not possible"):
        Compressing(bytes=10).compressed(net, TRAIN[0])


def test_models_take_turns_when_their_calls_are_compared():
    order: list[str] = []

    class Noted(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x):
            order.append(self.name)
            return x

    actual = latencies([Noted("a"), Noted("b")], torch.ones(1), repeats=3, warmup=1)
    assert order == ["a", "b"] * 4
    assert all(seconds > 0 for seconds in actual)
