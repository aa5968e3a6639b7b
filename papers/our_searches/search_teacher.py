"""What was tried on the teacher–student task: exact lifts against plain training at several rates."""

from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Adam

from papers.common.arms import Entry, Row, machine, tried
from papers.common.protocol import few
from torchlift import Arm
from torchlift.data import teacher_student
from torchlift.lifts import Expand, Lifter, Normalize, Standardize
from torchlift.models import BlockNet
from torchlift.recipes import BestOf

BLOCKS, EPOCHS, FIRST = (7, 9), 75, 100


def arms() -> list[Entry]:
    """The best plain rate first."""
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
    small = [arm(name, recipe, lr) for name, recipe, rates in choices for lr in rates]
    return [*small, *(arm("five blocks, plain", None, lr, blocks=5) for lr in (3e-3, 1e-3, 6e-3))]


def arm(name: str, recipe: Any, lr: float, blocks: int = 1) -> Entry:
    """Adam, cosine."""
    settings: Row = {"loss": "mse", "schedule": "cosine", "optimizer": partial(Adam, lr=lr)}
    return Entry(f"{name}, lr {lr:g}", partial(BlockNet, blocks), Arm(recipe, **settings))


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
    rows = [
        {"teacher": blocks} | row
        for blocks in BLOCKS
        for row in tried(
            arms(), partial(seeded, blocks, images), numbers, length, out / f"search-teacher-{blocks}"
        )
    ]
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
