"""Neural lifting at its best: Adam and a cosine in every phase, a rule that can fire."""

import math
import statistics
from functools import partial
from pathlib import Path

from torch.optim import SGD, Adam

import torchlift as tl
from papers.common.arms import Row, difference, machine
from papers.neural_lifting.table3 import LIFTERS, PUBLISHED
from papers.our_searches.rivals_teacher import sampled
from torchlift import Arm
from torchlift.experiments.arm import Setup
from torchlift.models import BlockNet
from torchlift.recipes import NeuralLifting
from torchlift.train.until import Plateau, Rule

EPOCHS, TEACHERS, TUNING, PATIENCE = 75, 6, 100, 8
COSINES = ("cosine", "cosine", "cosine")
PLAIN, PAPERS = "plain, Adam and cosine", "neural lifting, the paper's settings"


def rules(epochs: float, patience: int) -> tuple[Rule, Rule, Rule]:
    """A third of the budget for each phase at most; no better for ``patience`` epochs ends it."""
    first, second, third = (Plateau(patience, cap=epochs / 3) for _ in range(3))
    return first, second, third


def lifting(epochs: float, rates: tuple[float, float, float], mix: float) -> NeuralLifting:
    """Adam with a cosine in every phase."""
    adam = partial(Adam, lr=rates[0])
    return NeuralLifting(
        "trunk", kind="block", mix=mix, lrs=rates, optimizers=(adam, adam, adam), schedules=COSINES,
        until=rules(epochs, PATIENCE),
    )  # fmt: skip


def trials(epochs: float) -> dict[str, Arm]:
    """Rates of the phases, and the mix."""
    choices = [((6e-3, 3e-3, 6e-3), 0.3), ((6e-3, 3e-3, 6e-3), 0.1), ((6e-3, 6e-3, 3e-3), 0.1)]
    return {
        f"neural lifting, rates {rates}, mix {mix}": Arm(
            lifting(epochs, rates, mix), partial(Adam, lr=rates[0])
        )
        for rates, mix in choices
    }


def paper(epochs: float, seed: int) -> Arm:
    """The paper's rates and patience for the teacher's depth, with SGD."""
    blocks = 7 + seed % 3
    settings = LIFTERS[blocks]
    recipe = NeuralLifting(
        "trunk", kind="block", init=settings["init"], mix=settings["mix"], lrs=settings["lrs"],
        until=rules(epochs, settings["patience"]),
    )  # fmt: skip
    return Arm(
        recipe, partial(SGD, lr=PUBLISHED.arms[f"1-block, {blocks}"]["lr"], weight_decay=1e-4), clip=5.0
    )


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Three trials on one teacher, then all arms on ``seeds`` others, at equal FLOPs."""
    del data
    length, numbers = epochs or EPOCHS, range(seeds or TEACHERS)
    settings: Row = {"loss": "mse", "keep": "best", "progress": False}
    settings |= {} if device is None else {"device": device}
    make, teach = partial(BlockNet, 1), partial(sampled, images)
    folder = out / f"at-its-best-{length:g}-{images or 0}"
    compared = tl.compare(
        make, teach, recipes={"plain": Arm(optimizer=partial(Adam, lr=6e-3)), "ours": trials(length)},
        seeds=numbers, tuning_seeds=(TUNING,), budget=length, schedule="cosine", out=folder, resume=True,
        **settings,
    )  # fmt: skip
    papers = Setup(make, teach, settings | {"epochs": length, "equal_cost": True})
    runs = [papers.run(paper(length, s), s, folder / f"paper-{s}", resume=True) for s in numbers]
    tried = compared.tuning["ours"]
    losses = {
        PLAIN: compared.scores("plain"),
        PAPERS: [run.scores["test"].metric for run in runs],
        tried.values["arm"]: compared.scores("ours"),
    }
    rows = [row(name, values, losses[PLAIN]) for name, values in losses.items()]
    ratios = "; ".join(f"{one['arm']}: {one['ratio to plain']['mean']:.2f}" for one in rows[1:])
    return {
        "title": "Neural lifting at its best",
        "source": "Neural lifting, section 5.2, with our settings beside its own",
        "finding": f"error over that of plain training with Adam and a cosine at equal FLOPs: {ratios}.",
        "scale": f"{length:g} plain epochs, {len(numbers)} teachers of seven, eight and nine blocks in turn",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per teacher"],
        "rows": rows,
        "trials": [{"arm": name, "validation": -value} for name, value in tried.candidates.items()],
        "notes": [f"Trials on teacher {TUNING}. {PATIENCE} epochs without progress end a phase of ours."],
    }


def row(name: str, values: list[float], plain: list[float]) -> Row:
    """One line of the table; ratios are geometric means over teachers."""
    gap = difference([math.log(v) for v in values], [math.log(v) for v in plain])
    ratio = {key: math.exp(min(gap[key], 700.0)) for key in ("mean", "low", "high")}
    return {
        "arm": name,
        "test MSE × 10³": 1e3 * math.exp(statistics.fmean(map(math.log, values))),
        "ratio to plain": None if name == PLAIN else ratio,
        "per teacher": values,
    }
