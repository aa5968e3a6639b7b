"""What was tried on the teacher–student task: exact lifts against plain training at several rates."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Adam

import torchlift as tl
from papers.common.arms import Row, machine, table
from papers.common.protocol import few
from torchlift import Arm
from torchlift.data import teacher_student
from torchlift.lifts import Expand, Lifter, Normalize, Standardize
from torchlift.models import BlockNet
from torchlift.recipes import BestOf

BLOCKS, EPOCHS, FIRST = (7, 9), 75, 100


def arms() -> dict[str, Arm]:
    """Adam; the best plain rate first."""
    choices: list[tuple[str, Any, tuple[float, ...]]] = [
        ("plain", None, (6e-3, 3e-3, 1e-2)),
        ("centered", Standardize(), (6e-3, 3e-3, 1e-2)),
        ("centered, scaled", Standardize(scaled=True), (3e-3, 6e-3)),
        ("linear lifting", Expand(), (3e-3,)),
        ("linear lifting, rank 1/8", Expand(rank=0.125), (3e-3, 6e-3)),
        ("folded norm", Normalize(), (1e-2,)),
        ("fading lifters", Lifter("trunk.block1.linear?", kind="fading", width=16), (3e-3,)),
        ("auto", BestOf(), (6e-3,)),
    ]
    small = {
        f"{name}, lr {lr:g}": Arm(recipe, partial(Adam, lr=lr))
        for name, recipe, rates in choices
        for lr in rates
    }
    large = {
        f"five blocks, plain, lr {lr:g}": Arm(None, partial(Adam, lr=lr), model=partial(BlockNet, 5))
        for lr in (3e-3, 1e-3, 6e-3)
    }
    return small | large


def compared(
    blocks: int, seeds: Sequence[int], epochs: float, out: Path, images: int | None = None
) -> list[Row]:
    """Every arm with a cosine on the teachers of a depth."""
    first, *others = (by_name := arms())
    recipes = {"plain": by_name[first]} | {name: by_name[name] for name in others}
    comparison = tl.compare(
        partial(BlockNet, 1), partial(seeded, blocks, images), recipes=recipes, seeds=seeds, budget=epochs,
        loss="mse", schedule="cosine", out=out / f"search-teacher-{blocks}", resume=True, progress=False,
    )  # fmt: skip
    return [{"teacher": blocks} | row for row in table(comparison, first)]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Every arm on ``seeds`` teachers of seven and nine blocks, none of them in Table 3."""
    del data
    numbers, length = range(FIRST, FIRST + (seeds or 1)), epochs or EPOCHS
    rows = [row for blocks in BLOCKS for row in compared(blocks, numbers, length, out, images)]
    return {
        "title": "Tried on the teacher–student task",
        "source": "our own search",
        "finding": "; ".join(best(rows, blocks) for blocks in BLOCKS),
        "scale": f"{length:g} plain epochs for every arm, {len(numbers)} teachers of each depth",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "notes": [
            "One block of 8,769 parameters unless five are named; test: mean squared error. Equal FLOPs."
        ],
    }


def seeded(blocks: int, samples: int | None, seed: int) -> Any:
    """The data of one teacher."""
    return few(teacher_student(blocks, seed=seed), samples)


def best(rows: list[Row], blocks: int) -> str:
    """The best arm by validation, and the best plain one."""
    mine = sorted(
        (row for row in rows if row["teacher"] == blocks), key=lambda row: row["validation"]["mean"]
    )
    plain = next(row for row in mine if row["arm"].startswith("plain"))
    first, second = mine[0]["test"]["mean"], plain["test"]["mean"]
    return f"{blocks} blocks: {mine[0]['arm']} {first:.3g}, best plain ({plain['arm']}) {second:.3g}"
