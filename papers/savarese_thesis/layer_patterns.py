"""Which layers are pruned: CS and IMP at one sparsity, by blocks of VGG (thesis Figure 4.12)."""

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from papers.common.arms import Row, spread
from papers.common.cells import Cells
from papers.savarese_thesis.pruning_runs import Setting, Way, dropping, fewer, sgd, told, tried
from torchlift.data import crop_flip, load
from torchlift.models import VGG16
from torchlift.recipes import ContinuousSparsification, IterativeMagnitude

PAPER = 0.9419  # the sparsity that s_init = 0 gave the thesis
CS, IMP = "CS", "IMP"


def setting(scale: float, data: str | None) -> tuple[Setting, ContinuousSparsification]:
    """VGG-16 with s_init = 0 and no target, as the thesis; or a slim one for few steps, with its sparsity."""
    found, where = load("cifar10", data), "*conv*weight"
    if scale >= 1:
        how = sgd(0.1, schedule=dropping, augment=crop_flip)
        place = Setting("VGG-16, CIFAR-10", VGG16, found, 160.0, how, where)
        return place, ContinuousSparsification(where=where)
    few = max(200, round(200_000 * scale))
    title = f"VGG-16 at an eighth of its width, {few} images of CIFAR-10"
    how = sgd(0.05, schedule="cosine")
    place = Setting(title, partial(VGG16, width=0.125), fewer(found, few, 2000), 12.0, how, where)
    return place, ContinuousSparsification(where=where, sparsity=PAPER)


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> Row:
    """CS; then magnitude pruning in one round to the very sparsity CS found, on each seed."""
    place, recipe = setting(scale, data)
    cells = Cells(out / "layer-patterns.jsonl")
    trials: list[Row] = []
    for seed in range(seeds):
        trials.append(tried(place, "dense", Way(), seed, cells))
        found = tried(place, CS, Way(recipe), seed, cells)
        equal = IterativeMagnitude(1, min(max(found["sparsity"], 1e-3), 0.999), where=place.where)
        trials += [found, tried(place, IMP, Way(equal), seed, cells)]
    blocks = {name: by_block([row for row in trials if row["method"] == name]) for name in (CS, IMP)}
    return told(
        "Layer patterns", "section 4.5.4, Figure 4.12", place, scale, trials, finding=finding(blocks),
        blocks=blocks, x_label="block of two convolutions", y_label="sparsity",
        curves=[
            {"name": name, "x": list(range(1, len(found) + 1)), "y": [one["mean"] for one in found]}
            for name, found in blocks.items()
        ],
    )  # fmt: skip


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
    place = max(range(len(ours)), key=lambda k: abs(ours[k] - theirs[k]))
    return (
        f"First block: CS {100 * ours[0]:.0f} %, IMP {100 * theirs[0]:.0f} % zeros; they differ most in "
        f"block {place + 1}: {100 * ours[place]:.0f} and {100 * theirs[place]:.0f} %."
    )
