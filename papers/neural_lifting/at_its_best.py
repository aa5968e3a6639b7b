"""Neural lifting at its best: Adam and a cosine in every phase, a rule that can fire."""

import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Adam

from papers.common.arms import Row, difference, machine
from papers.common.cells import Cells
from papers.common.protocol import few
from papers.common.rivals import Place, kept, way
from papers.neural_lifting.table3 import LIFTERS, PUBLISHED
from papers.our_searches.rivals_teacher import teacher
from torchlift import Arm
from torchlift.data import Splits
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


def trials(epochs: float) -> dict[str, tuple[str, Arm]]:
    """Rates of the phases, and the mix."""
    choices = [((6e-3, 3e-3, 6e-3), 0.3), ((6e-3, 3e-3, 6e-3), 0.1), ((6e-3, 6e-3, 3e-3), 0.1)]
    named = {f"neural lifting, rates {rates}, mix {mix}": (rates, mix) for rates, mix in choices}
    return {
        name: way("Adam", {"lr": rates[0]}, name, lifting(epochs, rates, mix))
        for name, (rates, mix) in named.items()
    }


def paper(epochs: float, seed: int) -> tuple[str, Arm]:
    """The paper's rates and patience for the teacher's depth, with SGD."""
    blocks = 7 + seed % 3
    known = LIFTERS[blocks]
    recipe = NeuralLifting(
        "trunk", kind="block", init=known["init"], mix=known["mix"], lrs=known["lrs"],
        until=rules(epochs, known["patience"]),
    )  # fmt: skip
    return way("paper's SGD", {"lr": PUBLISHED.arms[f"1-block, {blocks}"]["lr"]}, PAPERS, recipe)


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
    settings: Row = {"loss": "mse", "keep": "best"} | ({} if device is None else {"device": device})
    teach = partial(sampled, images)
    flat = Place("teacher", partial(BlockNet, 1), teach, length, settings | {"clip": 5.0}, ratio=True)
    falling = Place("teacher", partial(BlockNet, 1), teach, length, settings | {"schedule": "cosine"})
    cells = Cells(out / f"at-its-best-{length:g}-{images or 0}.jsonl")
    known = trials(length)
    tried = {name: kept(cells, falling, *one, TUNING, "FLOPs") for name, one in known.items()}
    best = min(tried, key=lambda name: tried[name].get("valid", math.inf))
    arms: dict[str, Any] = {
        PLAIN: lambda seed: kept(cells, falling, *way("Adam", {"lr": 6e-3}), seed, "FLOPs"),
        PAPERS: lambda seed: kept(cells, flat, *paper(length, seed), seed, "FLOPs"),
        best: lambda seed: kept(cells, falling, *known[best], seed, "FLOPs"),
    }
    found = {name: [arm(seed)["test"] for seed in numbers] for name, arm in arms.items()}
    rows = [row(name, values, found[PLAIN]) for name, values in found.items()]
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
        "trials": [{"arm": name, **result} for name, result in tried.items()],
        "notes": [f"Trials on teacher {TUNING}. {PATIENCE} epochs without progress end a phase of ours."],
    }


def sampled(samples: int | None, seed: int) -> Splits:
    """The teacher of a seed, on so many samples."""
    return few(teacher(seed), samples)


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
