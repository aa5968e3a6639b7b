"""Which layers are pruned: CS and IMP at one sparsity, by blocks of VGG (thesis Figure 4.12)."""

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from papers.common.arms import Row, spread
from papers.common.cells import Cells
from papers.savarese_thesis.pruning_runs import TICKETS, Setting, as_record, fewer, sgd, sized, tried, whole
from torchlift import Arm
from torchlift.data import load
from torchlift.models import VGG16
from torchlift.recipes import ContinuousSparsification, IterativeMagnitude

PAPER = 0.9419  # the sparsity that s_init = 0 gave the thesis
CS, IMP = "CS", "IMP"


def setting(stand_in: bool, data: str | None) -> tuple[Setting, ContinuousSparsification]:
    """VGG-16, s_init = 0, no target, as the thesis; the stand-in: a slim one, with the thesis' sparsity."""
    where = "*conv*weight"
    if not stand_in:
        how = TICKETS.settings("ResNet-20") | {"batch_size": 64, "progress": False}
        training = Setting("VGG-16, CIFAR-10", VGG16, whole("cifar10", data), 85.0, how, where)
        return training, ContinuousSparsification(where=where)
    title = "VGG-16 at an eighth of its width, 4000 images of CIFAR-10"
    how = sgd(0.05, schedule="cosine")
    small = fewer(load("cifar10", data), 4000, 2000)
    training = Setting(title, partial(VGG16, width=0.125), small, 12.0, how, where)
    return training, ContinuousSparsification(where=where, sparsity=PAPER)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """CS; then magnitude pruning in one round to the very sparsity CS found, on each seed."""
    training, recipe = setting(stand_in, data)
    training = sized(training, epochs, images, device)
    cells = Cells(out / "layer-patterns.jsonl")
    trials: list[Row] = []
    work = partial(on_seed, training, recipe, cells.journal.path)
    for three in cells.all(
        {
            f"{training.title}, {training.epochs:g} epochs, {seed}": partial(work, seed)
            for seed in range(seeds or 3)
        }
    ):
        trials += three
    blocks = {name: by_block([row for row in trials if row["method"] == name]) for name in (CS, IMP)}
    return as_record(
        "Layer patterns", "section 4.5.4, Figure 4.12", training, stand_in, trials, finding=finding(blocks),
        blocks=blocks, x_label="block of two convolutions", y_label="sparsity",
        **{f"first block, {name}": sparsities[0] for name, sparsities in blocks.items()},
        curves=[
            {"name": name, "x": list(range(1, len(sparsities) + 1)), "y": [one["mean"] for one in sparsities]}
            for name, sparsities in blocks.items()
        ],
    )  # fmt: skip


def on_seed(training: Setting, recipe: ContinuousSparsification, journal: Path, seed: int) -> list[Row]:
    """The dense network, CS, and IMP to as many zeros."""
    cells = Cells(journal)
    dense, sparse = (
        tried(training, name, arm, seed, cells) for name, arm in (("dense", Arm()), (CS, Arm(recipe)))
    )
    equal = IterativeMagnitude(1, min(max(sparse["sparsity"], 1e-3), 0.999), where=training.where)
    return [dense, sparse, tried(training, IMP, Arm(equal), seed, cells)]


def by_block(rows: Sequence[Row]) -> list[Row]:
    """The sparsity of every two consecutive convolutions, mean and deviation over seeds."""
    names = list(rows[0]["layers"])
    pairs = [names[k : k + 2] for k in range(0, len(names), 2)]
    return [
        spread([statistics.fmean(row["layers"][name] for name in pair) for row in rows]) for pair in pairs
    ]


def finding(blocks: dict[str, list[Row]]) -> str:
    """Where the two differ most."""
    ours, theirs = ([one["mean"] for one in blocks[name]] for name in (CS, IMP))
    block = max(range(len(ours)), key=lambda k: abs(ours[k] - theirs[k]))
    return (
        f"First block: CS {100 * ours[0]:.0f} %, IMP {100 * theirs[0]:.0f} % zeros; they differ most in "
        f"block {block + 1}: {100 * ours[block]:.0f} and {100 * theirs[block]:.0f} %."
    )
