"""Whitened patches and coarse to fine on CIFAR-10, against tuned Muon at equal CPU time."""

import dataclasses
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import few
from papers.our_searches.held_out import minus_loss, warm_cosine
from papers.our_searches.held_out_tasks import Convolutions, ViT
from papers.our_searches.held_out_tasks import images as cut
from torchlift.core import Lift, chain
from torchlift.experiments.arm import Setup
from torchlift.experiments.step_times import step_times
from torchlift.lifts import Normalize, Whitened
from torchlift.methods.inside import Inside
from torchlift.methods.recipe import RecipeLike
from torchlift.optim import Muon
from torchlift.recipes import CoarseToFine
from torchlift.train.run.checks import DryRun

SEEDS, FIRST, TUNING, BATCH, IMAGES = 3, 10, 110, 32, 15_000
"""Seeds from ``FIRST`` on: not those of the held-out contest, which has these data too."""
RATES = (1e-2, 2e-2)
Recipes = Mapping[str, RecipeLike | Lift | None]


@dataclasses.dataclass(frozen=True)
class Lead:
    """A network, the steps whose time every way has, and pairs of ways: the control, then the lead."""

    make: type[nn.Module] | partial[nn.Module]
    steps: int
    pairs: tuple[tuple[str, str], ...]
    recipes: Recipes


LEADS: dict[str, Lead] = {
    "CNN 12-24-48": Lead(
        partial(Convolutions, 3, (12, 24, 48)),
        400,
        (("norm", "whitened, norm"), ("norm", "coarse to fine, norm"), ("plain", "whitened")),
        {
            "plain": None,
            "norm": Normalize(),
            "whitened": Whitened(),
            "whitened, norm": chain(Normalize(), Whitened()),
            "coarse to fine, norm": Inside(Normalize(), CoarseToFine()),
        },
    ),
    "ViT 48×2": Lead(
        ViT, 320, (("plain", "coarse to fine"),), {"plain": None, "coarse to fine": CoarseToFine()}
    ),
}


class Measure:
    """The runs of one network."""

    def __init__(
        self, name: str, out: Path, data: str | None, epochs: float | None = None, images: int | None = None
    ) -> None:
        self.lead = LEADS[name]
        self.splits = few(cut("cifar10", IMAGES, data), images)
        batches = math.ceil(len(self.splits.train[0]) / BATCH)
        self.steps = self.lead.steps if epochs is None else epochs * batches
        label = name.replace(" ", "-")
        self.cells = Cells(out / "two-leads" / f"{label}-{epochs or 0:g}-{images or 0}.jsonl")

    def arm(self, way: str, rate: float) -> tl.Arm:
        """A way with Muon."""
        return tl.Arm(self.lead.recipes[way], partial(Muon, lr=rate))

    def prices(self) -> dict[str, float]:
        """CPU seconds of a step of every way."""
        arms = {way: self.arm(way, 1e-5) for way in self.lead.recipes}
        data = DryRun(self.splits.train, BATCH)
        return self.cells.get(
            "seconds of a step", lambda: step_times(arms, tl.Task(self.lead.make()), data, rounds=8)
        )

    def run(self, way: str, rate: float, seed: int) -> Row:
        """One training for the time of the plain network's steps with Muon."""

        def train() -> Row:
            prices = self.prices()
            steps = self.steps * prices["plain"] / prices[way]
            splits = self.splits
            settings: Row = {"batch_size": BATCH, "schedule": warm_cosine, "keep": "last"}
            setup = Setup(self.lead.make, (splits.train, splits.valid, splits.test), settings)
            epochs = steps / math.ceil(len(splits.train[0]) / BATCH)
            started = time.process_time()
            result = setup.run(self.arm(way, rate), seed, epochs=epochs, metric=minus_loss, progress=False)
            seconds = time.process_time() - started
            scores = {part: result.scores[part].loss for part in ("valid", "test")}
            return scores | {"seconds": seconds, "steps": steps}

        return self.cells.get(f"{way}, lr {rate:g} | {seed}", train)

    def best_rate(self, way: str) -> float:
        """By the validation loss of the tuning seed."""
        return min(RATES, key=lambda rate: self.run(way, rate, TUNING)["valid"])

    def rows(self, name: str, seeds: Sequence[int]) -> list[Row]:
        """A row per pair: losses, and the paired difference."""
        found = {
            way: [self.run(way, self.best_rate(way), seed) for seed in seeds] for way in self.lead.recipes
        }
        losses = {way: [row["test"] for row in rows] for way, rows in found.items()}
        return [
            {
                "network": name,
                "control": control,
                "lead": lead,
                "control's loss": spread(losses[control]),
                "lead's loss": spread(losses[lead]),
                "difference": difference(losses[lead], losses[control]),
                "time of a step": self.prices()[lead] / self.prices()[control],
                "seconds to the control's": statistics.fmean(row["seconds"] for row in found[lead])
                / statistics.fmean(row["seconds"] for row in found[control]),
                "rates": {way: self.best_rate(way) for way in (control, lead)},
            }
            for control, lead in self.lead.pairs
        ]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """All pairs of both networks; 400 and 320 steps unless given in epochs."""
    torch.set_num_threads(1)
    numbers = range(FIRST, FIRST + (seeds or SEEDS))
    rows = [row for name in LEADS for row in Measure(name, out, data, epochs, images).rows(name, numbers)]
    return {
        "title": "Whitened patches and coarse to fine against tuned Muon",
        "source": "our own measurement",
        "finding": "; ".join(map(finding, rows)) + ".",
        "scale": f"{f'{epochs:g} epochs' if epochs else '400 (CNN) and 320 (ViT) steps'} of {BATCH} of "
        f"{images or IMAGES:,} images",
        "seeds": list(numbers),
        "tuning seed": TUNING,
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "rates"],
        "rows": rows,
        "notes": [
            f"Muon for every way, at the better of {RATES[0]:g} and {RATES[1]:g} on validation data of a "
            "seed outside the table. CPU time of one thread: that of the plain network's steps."
        ],
    }


def finding(row: Row) -> str:
    """A pair in a sentence."""
    gap, ours, theirs = row["difference"], row["lead's loss"]["mean"], row["control's loss"]["mean"]
    interval = f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
    names = f"{row['network']}: {row['lead']} {ours:.3f} against {row['control']} {theirs:.3f}"
    return f"{names}, {interval} nats"


def main() -> None:
    """The runs of one network alone: ``python -m papers.our_searches.two_leads NAME OUT``."""
    torch.set_num_threads(1)
    name, out = sys.argv[1:]
    numbers = range(FIRST, FIRST + SEEDS)
    for row in Measure(name, Path(out), os.environ.get("TORCHLIFT_DATA")).rows(name, numbers):
        print(finding(row), flush=True)


if __name__ == "__main__":
    main()
