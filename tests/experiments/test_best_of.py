"""BestOf: own rates and optimizers, what fails is out, the winner goes on, plain within the margin."""

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
from torchlift.experiments.best_of import suggestions
from torchlift.lifts import Normalize, Standardize
from torchlift.methods.recipe import OneLift, Recipe, as_recipe
from torchlift.optim import Muon
from torchlift.recipes import BestOf, MagnitudePruning, Rotated

SETTINGS = {"batch_size": 16, "progress": False, "optimizer": partial(torch.optim.Adam, lr=0.01), "seed": 3}


def data(n: int = 160) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def run(candidates, epochs: float = 20, **changes) -> tl.Result:
    recipe = BestOf(candidates, trials=0.4, **{k: changes.pop(k) for k in ("margin",) if k in changes})
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
    assert rates["trial of plain: base"] == pytest.approx(0.01)
    assert rates["trial of fast: base"] == pytest.approx(0.03)
    assert rates["trial of muon: base"] == pytest.approx(0.02)


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


def test_trial_and_rest_follow_the_schedule_once() -> None:
    """Two candidates share 0.4 of the budget: a trial is a quarter of the run of the one that is chosen."""
    result = run({"slow": tl.Arm(rate=0.01)}, schedule="cosine")
    rates = [row["lr"] for row in result.history if "slow" not in row["phase"]]
    ends = [(number + 1) / 16 for number in range(16)]  # of the epochs: four in the trial, twelve after it
    assert rates == pytest.approx([0.005 * (1 + math.cos(math.pi * end)) for end in ends], abs=2e-4)


def test_a_staged_recipe_is_tried_in_its_first_stage_and_a_whole_one_starts_again() -> None:
    candidates = {"rotated": tl.Arm(Rotated(), rate=4.0), "pruned": MagnitudePruning(sparsity=0.5)}
    shown = phases(run(candidates, margin=0.0))
    assert [name for name in shown if name.startswith("trial of rotated")] == ["trial of rotated: lifted 1"]
    assert [name for name in shown if name.startswith("rotated")] == [
        f"rotated: lifted {stage}" for stage in (1, 2, 3)
    ]
    alone = phases(run({"pruned": tl.Arm(MagnitudePruning(sparsity=0.5), rate=3.0)}, margin=0.0))
    parts = [name.removeprefix("trial of ") for name in alone if "pruned" in name]
    assert parts[: len(parts) // 2] == parts[len(parts) // 2 :]


def test_the_last_candidates_wait_where_the_budget_is_small() -> None:
    said = words(run({"one": tl.Arm(rate=2.0), "two": tl.Arm(rate=3.0)}, epochs=10))
    assert re.search("losses: .*one [0-9]", said)
    assert said.endswith("no budget to try two")
    assert BestOf(trials=0.25).affordable(1e6) == 4  # a sixteenth of the budget each


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

        place = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            run_(out=place, save_every=0.0, listener=stop)
        again = run_(out=place, resume=True)
        assert words(again) == words(whole)
        for one, two in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("layer", "first"),
    [
        (nn.ReLU(), ["centered", "folded norm"]),
        (nn.BatchNorm1d(4), ["rotated", "Muon"]),
        (nn.LayerNorm(4), ["Muon", "rotated"]),
        (nn.LSTM(4, 4), ["rotated, rate × 6", "Muon"]),
    ],
)
def test_what_is_tried_first_depends_on_the_kind_of_network(layer: nn.Module, first: list[str]) -> None:
    found = suggestions(nn.Sequential(nn.Linear(4, 4), layer))
    assert list(found)[:2] == first
    assert {"Muon", "rate × 3", "rate / 3"} <= set(found)
