"""Neural lifting, section 4: how complex the functions of each phase are (a, b, c, d of eqs. 7–10)."""

from functools import partial
from pathlib import Path

from torch.optim import SGD

from papers.common.arms import Entry, Row, machine, measure, spread
from papers.neural_lifting.table3 import EPOCHS, PAPER
from torchlift import Arm
from torchlift.analyze import cycles, rkhs_norm
from torchlift.data import Splits, teacher_student
from torchlift.models import BlockNet
from torchlift.recipes import NeuralLifting


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """One cycle with the paper's rates per teacher; ``scale`` multiplies its 75 epochs."""
    del data
    epochs, teachers = EPOCHS * (scale or 1.0), range(seeds or 3)
    rows = [row(blocks, list(teachers), epochs, out) for blocks in PAPER]
    means = [row["c"]["mean"] - row["d"]["mean"] for row in rows]
    return {
        "title": "Complexity through the phases",
        "source": "Neural lifting, section 4.2, eqs. 7–10",
        "finding": "Complexity gained over a cycle beyond its base phase, c − d: "
        + ", ".join(
            f"{value:+.3f} (teacher of {blocks})" for blocks, value in zip(PAPER, means, strict=True)
        ),
        "scale": f"{epochs:g} epochs, {len(teachers)} teachers of each depth",
        "seeds": list(teachers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": [
            "Γ: the RKHS norm under an RBF kernel of the smallest function through the outputs at the first "
            "512 training points; bandwidth their median distance, jitter 1e-6. a, b: validation loss × 10³."
        ],
    }


def row(blocks: int, teachers: list[int], epochs: float, out: Path) -> Row:
    """a, b, c, d of one kind of teacher, mean and spread."""
    known = PAPER[blocks]
    recipe = NeuralLifting(
        "trunk", kind="block", init=known["init"], mix=known["mix"], lrs=known["lrs"], complexity="rkhs"
    )
    settings: Row = {
        "loss": "mse",
        "optimizer": partial(SGD, lr=known["plain"], weight_decay=1e-4),
        "clip": 5.0,
    }
    arm = Entry("phases", partial(BlockNet, 1), Arm(recipe, **settings))
    sets = {seed: teacher_student(blocks, seed=seed) for seed in teachers}
    found = [
        cycles(measure(arm, sets[s], s, epochs, out / f"complexity-{blocks}").history)[0] for s in teachers
    ]
    return {
        "teacher": blocks,
        "Γ of the target": spread([target(splits) for splits in sets.values()]),
        "a": spread([1e3 * one.a for one in found]),
        "b": spread([1e3 * one.b for one in found]),
        "c": spread([one.c or 0.0 for one in found]),
        "d": spread([one.d or 0.0 for one in found]),
    }


def target(splits: Splits) -> float:
    """Γ of the function to be learnt, on the same points."""
    x, y = splits.train
    return rkhs_norm(x[:512], y[:512])
