"""Time as the price: what each recipe's plain epoch's worth of FLOPs takes on this machine."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Arm, Setup
from torchlift.experiments.comparison import PLAIN
from torchlift.experiments.executors import Executor, run_all
from torchlift.journal import Journal
from torchlift.train.engines import first_process
from torchlift.train.run.record import run_id
from torchlift.train.run.result import Result

SHORT_RUN = 0.2
"""Of the budget, spent on finding a recipe's speed; at least one epoch."""
FILE = "prices.jsonl"


def priced(
    setup: Setup,
    arms: Mapping[str, Arm],
    budget: float,
    time: float | str | None,
    seed: int,
    folder: Path | None,
    executor: Executor,
) -> tuple[dict[str, float], float | None]:
    """The budget of each recipe in plain epochs by FLOPs, and the seconds that each is to take.

    Without ``time`` all have the same budget. With it, recipe r has T / sᵣ, where sᵣ is its seconds for each
    plain epoch's worth of FLOPs, measured in a short run; kept in the folder, so that a run that goes on has
    the same budget.
    """
    if time is None:
        return dict.fromkeys(arms, budget), None
    ratio = ratio_of(time)
    journal = None if folder is None else Journal(folder / FILE, run_id(folder))
    speeds = {} if journal is None else {row["recipe"]: row["seconds"] for row in journal.read()}
    new = [name for name in arms if name not in speeds]
    epochs = min(budget, max(1.0, SHORT_RUN * budget))
    jobs = [partial(setup.run, arms[name], seed, epochs=epochs, progress=False) for name in new]
    measured = dict(zip(new, run_all(speed, jobs, executor), strict=True))
    if journal is not None and measured and first_process():
        journal.append(*({"recipe": name, "seconds": seconds} for name, seconds in measured.items()))
    speeds |= measured
    seconds = float(time) if ratio is None else ratio * budget * speeds[PLAIN]
    return {name: seconds / speeds[name] for name in arms}, seconds


def speed(job: Callable[[], Result]) -> float:
    """Seconds for each plain epoch's worth of FLOPs."""
    result = job()
    return result.seconds / max(result.cost, 1e-9)


def ratio_of(time: float | str) -> float | None:
    """``"1.5x"`` → 1.5 times plain training; None where seconds are given."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*x\s*", time) if isinstance(time, str) else None
    value = float(match[1]) if match else time
    if isinstance(value, str | bool) or not value > 0:
        raise TorchliftError(f"time is seconds for each run, or '1x' for plain training's; got {time!r}.")
    return value if match else None
