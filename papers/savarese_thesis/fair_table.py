"""Pruning methods side by side, each with the same number of trials on validation data and another seed."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from torch.optim import AdamW

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.pruning_runs import Setting, as_record, means, sgd, trial
from torchlift import Arm
from torchlift.data import Splits
from torchlift.lifts import HardConcrete, Slim, SoftThreshold
from torchlift.methods.lift_then_tune import LiftThenTune
from torchlift.recipes import ContinuousSparsification, IterativeMagnitude, MagnitudePruning
from torchlift.train.settings import cosine

TRIALS, TUNED_ON = 6, 100
RATES = (0.02, 0.05, 0.1)
STARTS = (-0.003, -0.006, -0.01, -0.015, -0.02, -0.03)  # s_init of the source's CS: few steps move s little
HARD = (1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 6e-3)  # strength of ℓ₀
DECAY = (2e-2, 2.8e-2, 4e-2, 5e-2, 6e-2, 8e-2)  # of STR's thresholds
NEAR = 0.002
SOURCE_CS = "CS of the source"

Ways = Mapping[str, tuple[Any, float]]
"""Recipes and learning rates by what a method varies."""


@dataclasses.dataclass(frozen=True)
class Method:
    """Six ways of one method; ``free`` ones have no target: their settings decide the sparsity."""

    ways: Callable[[float, str], Ways]
    free: bool = False


def with_sgd(rate: float) -> dict[str, Any]:
    """SGD with momentum."""
    return sgd(rate, schedule="cosine")


def with_adam(rate: float) -> dict[str, Any]:
    """AdamW at a twentieth of the rate: transformers hardly learn by SGD."""
    adamw = partial(AdamW, lr=rate / 20)
    return {"optimizer": adamw, "batch_size": 64, "progress": False, "schedule": "cosine", "clip": 1.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Where methods are compared, at which sparsities (they are tuned at the first), and which of them."""

    setting: Setting
    levels: Sequence[float]
    names: Sequence[str]
    at: Callable[[float], dict[str, Any]] = with_sgd
    """The settings of a run at a learning rate; every fit goes through a cosine of its own."""


def dense(level: float, where: str) -> Ways:
    """The network as it is, at six rates."""
    del level, where
    return {f"lr {rate}": (None, rate) for rate in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)}


def cs(level: float, where: str) -> Ways:
    """Continuous sparsification with a target."""
    return each(
        "finetune",
        (0.25, 0.5),
        lambda share: ContinuousSparsification(sparsity=level, where=where, finetune=share),
    )


def source_cs(level: float, where: str) -> Ways:
    """As in the source: no target, s at the weights' own rate, s_init alone decides."""
    del level
    return {f"s_init {s}, lr 0.1": (ContinuousSparsification(s_init=s, where=where), 0.1) for s in STARTS}


def restarted(share: float) -> Callable[[float], float]:
    """Cosine over the stages that prune, and a fresh one over the fine-tuning."""
    return lambda t: cosine(t / share) if t < share else cosine((t - share) / (1 - share))


def mp(level: float, where: str) -> Ways:
    """Magnitude pruning at once, under one cosine or a fresh one after the cut."""
    prune = partial(MagnitudePruning, level, where)
    schedules = {"one": cosine, "fresh": restarted(0.5)}
    return each("cosine", schedules, lambda kind: prune(schedule=schedules[kind]))


def gmp(level: float, where: str) -> Ways:
    """Magnitude pruning in eight stages, under one cosine or a fresh one for the fine-tuning."""
    prune = partial(MagnitudePruning, level, where, steps=8)
    kinds = {"one": prune(share=0.8, schedule=cosine), "fresh": prune(share=0.5, schedule=restarted(0.5))}
    return each("cosine", kinds, lambda kind: kinds[kind])


def imp(level: float, where: str, rewind: int | None = 0) -> Ways:
    """Rounds of magnitude pruning; every round has its own cosine."""
    return each(
        "rounds",
        (2, 3),
        lambda rounds: IterativeMagnitude(rounds, 1 - (1 - level) ** (1 / rounds), rewind, where),
    )


def slimming(level: float, where: str) -> Ways:
    """An ℓ₁ penalty on the weights, then the smallest go (Liu et al. 2017, per weight)."""
    return each("strength", (1e-4, 1e-3), lambda much: LiftThenTune(Slim(where, level, strength=much)))


def l0(level: float, where: str) -> Ways:
    """Hard-concrete gates, logits at 300 times the weights' rate."""
    del level
    groups = {"*.logit": {"lr_factor": 300.0}, "*": {}}
    return {
        f"strength {much}, lr 0.05": (LiftThenTune(HardConcrete(where, much), groups=groups), 0.05)
        for much in HARD
    }


def soft_thresholds(level: float, where: str) -> Ways:
    """STR, whose decay of the thresholds' logits decides the sparsity."""
    del level

    def recipe(decay: float) -> LiftThenTune:
        groups = {"*.s": {"weight_decay": decay}, "*": {}}
        return LiftThenTune(SoftThreshold(where, s_init=-6.0), groups=groups)

    return {f"decay {decay}, lr 0.05": (recipe(decay), 0.05) for decay in DECAY}


METHODS = {
    "dense": Method(dense), "CS": Method(cs), SOURCE_CS: Method(source_cs, free=True),
    "MP": Method(mp), "GMP": Method(gmp), "IMP": Method(imp), "IMP-C": Method(partial(imp, rewind=None)),
    "slimming": Method(slimming), "ℓ₀": Method(l0, free=True), "STR": Method(soft_thresholds, free=True),
}  # fmt: skip


def each(knob: str, values: Iterable[Any], make: Callable[[Any], Any]) -> Ways:
    """Every value of one knob at every rate."""
    return {f"{knob} {value}, lr {rate}": (make(value), rate) for value, rate in product(values, RATES)}


def compared(case: Case, seeds: int, cells: Cells) -> tuple[list[Row], dict[str, Row]]:
    """Tune every method, then train what was chosen on every seed: rows of runs, and what was chosen."""
    chosen = {name: tuned(case, name, cells) for name in case.names}
    jobs = [
        (name, level, says, seed)
        for name in case.names
        for level, says in chosen[name]["chosen"].items()
        for seed in range(seeds)
    ]
    work = [job(case, *one) for one in jobs]
    cells.all(dict(work))
    rows = [
        {**cells.values[key], "method": name if name == "dense" else f"{name}, {level}"}
        for (key, _), (name, level, _, _) in zip(work, jobs, strict=True)
    ]
    return rows, chosen


def tuned(case: Case, name: str, cells: Cells) -> Row:
    """Six trials on validation data; for every level the best of those that reach it, or the sparsest."""
    method, (first, *_) = METHODS[name], case.levels
    ways = list(method.ways(first, case.setting.where))
    rows = cells.all(dict(job(case, name, first, says, TUNED_ON) for says in ways))
    trials = dict(zip(ways, rows, strict=True))
    assert len(trials) == TRIALS
    levels = case.levels if name != "dense" else (0.0,)
    picks = {level: picked(trials, level if method.free else 0.0) for level in levels}
    kept = {says: {k: row[k] for k in ("sparsity", "accuracy")} for says, row in trials.items()}
    return {"trials": kept, "chosen": picks}


def picked(trials: Mapping[str, Row], level: float) -> str:
    """The most accurate trial that is sparse enough; where none is, the sparsest."""
    enough = [says for says, row in trials.items() if row["sparsity"] >= level - NEAR]
    return max(enough or trials, key=lambda says: trials[says]["accuracy" if enough else "sparsity"])


def job(case: Case, name: str, level: float, says: str, seed: int) -> tuple[str, Callable[[], Row]]:
    """One run of a method and its key; on the seed of the trials it is measured on validation data."""
    setting, method = case.setting, METHODS[name]
    if seed == TUNED_ON:
        data = setting.data
        setting = dataclasses.replace(setting, data=Splits(data.train, data.valid, data.valid, data.kind))
    recipe, rate = method.ways(level or case.levels[0], setting.where)[says]
    of = name if method.free or name == "dense" else f"{name} {level}"
    key = f"{setting.title}, {setting.epochs:g} epochs, {of}, {says}, seed {seed}"
    return key, partial(trial, setting, name, Arm(recipe, **case.at(rate)), seed)


def table(title: str, figures: str, case: Case, stand_in: bool, seeds: int, cells: Cells, **more: Any) -> Row:
    """The comparison as the page of a reproduction takes it, every trial with it."""
    rows, chosen = compared(case, seeds, cells)
    return as_record(
        title, figures, case.setting, stand_in, rows, finding=finding(rows, case.levels), tuning=chosen,
        trials_per_method=TRIALS, tuned_on_seed=TUNED_ON,
        notes=[
            f"Every method has {TRIALS} trials on validation data and seed {TUNED_ON}, which the table does "
            f"not use, at sparsity {case.levels[0]}; methods with a target try 3 rates × 2 settings, those "
            "without one 6 settings, and of these the best that reaches the level is taken, or the sparsest.",
            "Equal epochs for all, rounds and fine-tuning included; fine-tuning may have a fresh cosine.",
        ],
        **more,
    )  # fmt: skip


def finding(rows: Sequence[Row], levels: Sequence[float]) -> str:
    """The ranking at each level; a method that stayed below it comes with its own sparsity."""
    table = {row["method"]: row for row in means(rows)}
    facts = [f"dense {100 * table['dense']['accuracy']['mean']:.1f} %"]
    for level in levels:
        own = {name.rpartition(",")[0]: row for name, row in table.items() if name.endswith(f", {level}")}
        ranked = sorted(own.items(), key=lambda item: -item[1]["accuracy"]["mean"])
        facts.append(
            f"at {100 * level:g} % zeros " + ", ".join(spoken(name, row, level) for name, row in ranked)
        )
        names = [name for name, _ in ranked]
        if SOURCE_CS in names:
            facts.append(f"CS as the thesis has it is number {names.index(SOURCE_CS) + 1} of {len(names)}")
    return "; ".join(facts) + "."


def spoken(name: str, row: Row, level: float) -> str:
    """Accuracy with its deviation, and the sparsity where it is not the level."""
    accuracy, zeros = row["accuracy"], row["sparsity"]["mean"]
    off = "" if abs(zeros - level) <= NEAR else f" with {100 * zeros:.1f} % zeros"
    return f"{name} {100 * accuracy['mean']:.1f} ± {100 * accuracy['sd']:.1f}{off}"
