"""What each recipe may spend: FLOPs of the comparison's network, or time on this machine."""

import re
import time as clocks
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Arm, Setup
from torchlift.experiments.executors import Executor, run_all
from torchlift.experiments.step_times import differ_in_rates
from torchlift.journal import Journal
from torchlift.train.cost import probe
from torchlift.train.engines import first_process
from torchlift.train.optimizers import ADAMW
from torchlift.train.run.checks import DryRun, as_task
from torchlift.train.run.names import option
from torchlift.train.run.record import run_id
from torchlift.train.run.result import Result

SHORT_RUN, ROUNDS = 0.1, 3
"""Of the budget, spent on finding a recipe's speed, at least one epoch; and how often, in turn."""
FILE = "prices.jsonl"


def priced_arms(
    setup: Setup,
    arms: Mapping[str, Arm],
    plain: str,
    budget: float,
    time: float | str | None,
    seed: int,
    folder: Path | None,
    executor: Executor,
) -> tuple[dict[str, float], float | None]:
    """The budget of each recipe in plain epochs by FLOPs, and the seconds that each is to take.

    Without ``time`` all have the FLOPs of ``budget`` epochs of the comparison's network. With it, recipe r
    has T / sᵣ, where sᵣ is its seconds for each plain epoch's worth of FLOPs: the least of short runs in
    turn, kept in the folder, so that a run that goes on has the same budget. Arms that differ in their rates
    alone share a measurement, at the lowest rate: noise must not tell them apart.
    """
    if time is None:
        return {name: budget * same_flops(setup, arm, seed) for name, arm in arms.items()}, None
    ratio = ratio_of(time)
    journal = None if folder is None else Journal(folder / FILE, run_id(folder))
    speeds = {} if journal is None else {row["recipe"]: row["seconds"] for row in journal.read()}
    measured = {name: slowest(arm, arms) for name, arm in arms.items()}
    new = [name for name in dict.fromkeys(measured.values()) if name not in speeds]
    epochs = min(budget, max(1.0, SHORT_RUN * budget))
    own = {"epochs": epochs, "equal_cost": False, "progress": False}
    jobs = [partial(setup.run, arms[name], seed, **own) for name in new]
    seconds = run_all(speed, jobs * ROUNDS, executor)
    least = {name: min(seconds[number :: len(new)]) for number, name in enumerate(new)}
    if journal is not None and least and first_process():
        journal.append(*({"recipe": name, "seconds": value} for name, value in least.items()))
    speeds |= least
    target = float(time) if ratio is None else ratio * budget * speeds[measured[plain]]
    return {name: target / speeds[measured[name]] for name in arms}, target


def same_flops(setup: Setup, arm: Arm, seed: int) -> float:
    """Plain epochs of the arm's network for the FLOPs of one of the comparison's."""
    if arm.model is None:
        return 1.0
    loss = setup.settings.get("loss", "cross_entropy")
    batch = DryRun(setup.split_data(seed)[0], setup.settings.get("batch_size", 128)).example()
    ours, theirs = (probe(as_task(setup.model(one, seed), loss), batch).flops for one in (Arm(), arm))
    return ours / theirs


def slowest(arm: Arm, arms: Mapping[str, Arm]) -> str:
    """The name of the arm with the lowest rate of all that differ from this one in their rates alone."""
    alike = {name: one for name, one in arms.items() if differ_in_rates(one, arm)}
    return min(alike, key=lambda name: alike[name].rate * (option(alike[name].optimizer or ADAMW, "lr") or 1))


def speed(job: Callable[[], Result]) -> float:
    """Seconds for each plain epoch's worth of FLOPs; of CPU time, where one thread computes."""
    started, used = clocks.perf_counter(), clocks.process_time()
    result = job()
    one = torch.get_num_threads() == 1 and result.engine.device.type == "cpu"
    share = (clocks.process_time() - used) / (clocks.perf_counter() - started) if one else 1.0
    return share * result.seconds / max(result.cost, 1e-9)


def ratio_of(time: float | str) -> float | None:
    """``"1.5x"`` → 1.5 times plain training; None where seconds are given."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*x\s*", time) if isinstance(time, str) else None
    value = float(match[1]) if match else time
    if isinstance(value, str | bool) or not value > 0:
        raise TorchliftError(f"time is seconds for each run, or '1x' for plain training's; got {time!r}.")
    return value if match else None
