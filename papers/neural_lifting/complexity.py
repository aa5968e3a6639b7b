"""Neural lifting, section 4: how complex the functions of each phase are (a, b, c, d of eqs. 7–10)."""

import dataclasses
from functools import partial
from pathlib import Path

from papers.common.arms import Entry, MeasuredRun, Row, machine, measure, spread
from papers.neural_lifting.table3 import LIFTED, LIFTERS, PUBLISHED, lifting
from torchlift import Arm
from torchlift.analyze import cycles, rkhs_norm
from torchlift.data import Splits, teacher_student
from torchlift.experiments.executors import run_all
from torchlift.models import BlockNet


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """One cycle with the paper's rates per teacher."""
    del data
    teachers, samples = range(seeds or 3), images or 10_000
    rows = [row(blocks, list(teachers), epochs, samples, out, device) for blocks in LIFTERS]
    means = [row["c"]["mean"] - row["d"]["mean"] for row in rows]
    return {
        "title": "Complexity through the phases",
        "source": "Neural lifting, section 4.2, eqs. 7–10",
        "finding": "Complexity gained over a cycle beyond its base phase, c − d: "
        + ", ".join(
            f"{value:+.3f} (teacher of {blocks})" for blocks, value in zip(LIFTERS, means, strict=True)
        ),
        "scale": f"{epochs or PUBLISHED.epochs:g} epochs, {len(teachers)} teachers of each depth",
        "seeds": list(teachers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": [
            "Γ: the RKHS norm under an RBF kernel of the smallest function through the outputs at the first "
            "512 training points; bandwidth their median distance, jitter 1e-6. a, b and what phase 1 lost: "
            "validation loss × 10³."
        ],
    }


def row(
    blocks: int, teachers: list[int], epochs: float | None, samples: int, out: Path, device: str | None
) -> Row:
    """a, b, c, d of one kind of teacher, mean and spread."""
    name = f"{LIFTED}, {blocks}"
    length = PUBLISHED.length(name, epochs)
    recipe = dataclasses.replace(lifting(blocks, length), complexity="rkhs")
    arm = Entry(
        "phases", partial(BlockNet, 1), Arm(recipe, loss="mse", epochs=length, **PUBLISHED.settings(name))
    )
    sets = {seed: teacher_student(blocks, samples, seed=seed) for seed in teachers}
    folder = out / f"complexity-{blocks}-{samples}-{length:g}"
    work = partial(one_teacher, arm, samples=samples, blocks=blocks, out=folder, device=device)
    first_cycles = [cycles(one.history)[0] for one in run_all(work, teachers)]
    return {
        "teacher": blocks,
        "Γ of the target": spread([target(splits) for splits in sets.values()]),
        "a": spread([1e3 * one.a for one in first_cycles]),
        "b": spread([1e3 * one.b for one in first_cycles]),
        "c": spread([one.c or 0.0 for one in first_cycles]),
        "d": spread([one.d or 0.0 for one in first_cycles]),
        "loss lost in phase 1": spread([1e3 * (one.fall or 0.0) for one in first_cycles]),
        "complexity gained in phase 1": spread([one.rise or 0.0 for one in first_cycles]),
    }


def one_teacher(
    arm: Entry, seed: int, samples: int, blocks: int, out: Path, device: str | None
) -> MeasuredRun:
    """The phases on a teacher."""
    return measure(arm, teacher_student(blocks, samples, seed=seed), seed, None, out, device)


def target(splits: Splits) -> float:
    """Γ of the function to be learnt, on the same points."""
    x, y = splits.train
    return rkhs_norm(x[:512], y[:512])
