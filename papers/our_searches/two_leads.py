"""Whitened patches and coarse to fine on CIFAR-10, against tuned Muon at equal CPU time."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.protocol import few
from papers.common.rivals import minus_loss
from papers.our_searches.held_out import warm_cosine
from papers.our_searches.held_out_tasks import Convolutions, ViT
from papers.our_searches.held_out_tasks import images as cut
from torchlift.core import Lift, chain
from torchlift.lifts import Normalize, Whitened
from torchlift.methods.inside import Inside
from torchlift.methods.recipe import RecipeLike
from torchlift.optim import Muon
from torchlift.recipes import CoarseToFine

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


def compared(
    name: str, seeds: Sequence[int], out: Path, data: str | None, epochs: float | None = None,
    images: int | None = None,
) -> tl.Comparison:  # fmt: skip
    """The ways of one network with Muon at their better rate, for the time of the plain network's steps."""
    lead, splits = LEADS[name], few(cut("cifar10", IMAGES, data), images)
    recipes = {
        way: {f"{way}, lr {rate:g}": tl.Arm(recipe, partial(Muon, lr=rate)) for rate in RATES}
        for way, recipe in lead.recipes.items()
    }
    budget = epochs or lead.steps / math.ceil(len(splits.train[0]) / BATCH)
    return tl.compare(
        lead.make, splits, recipes=recipes, seeds=seeds, tuning_seeds=(TUNING,), budget=budget, time="1x",
        out=out / "two-leads" / f"{name.replace(' ', '-')}-{epochs or 0:g}-{images or 0}", resume=True,
        batch_size=BATCH, schedule=warm_cosine, keep="last", metric=minus_loss, progress=False,
    )  # fmt: skip


def table(name: str, comparison: tl.Comparison) -> list[Row]:
    """A row per pair: losses, and the paired difference."""
    runs = comparison.results
    losses = {way: [run.scores["test"].loss for run in some] for way, some in runs.items()}
    seconds = {way: statistics.fmean(run.seconds for run in some) for way, some in runs.items()}
    return [
        {
            "network": name,
            "control": control,
            "lead": lead,
            "control's loss": spread(losses[control]),
            "lead's loss": spread(losses[lead]),
            "difference": difference(losses[lead], losses[control]),
            "FLOPs to the control's": runs[lead][0].flops / runs[control][0].flops,
            "seconds to the control's": seconds[lead] / seconds[control],
            "arms": [comparison.tuning[way].values["arm"] for way in (control, lead)],
        }
        for control, lead in LEADS[name].pairs
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
    rows = [row for name in LEADS for row in table(name, compared(name, numbers, out, data, epochs, images))]
    return {
        "title": "Whitened patches and coarse to fine against tuned Muon",
        "source": "our own measurement",
        "finding": "; ".join(map(finding, rows)) + ".",
        "scale": f"{f'{epochs:g} epochs' if epochs else '400 (CNN) and 320 (ViT) steps'} of {BATCH} of "
        f"{images or IMAGES:,} images",
        "seeds": list(numbers),
        "tuning seed": TUNING,
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "arms"],
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
