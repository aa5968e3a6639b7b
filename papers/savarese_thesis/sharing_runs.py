"""Wide ResNets with and without shared templates: one durable run, and what is kept of it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from papers.common.arms import Row, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import few, protocol
from torchlift.data import Splits
from torchlift.models import SHARED, swrn
from torchlift.recipes import SoftSharing

PUBLISHED = protocol("savarese_thesis", "Table 3.1")
COLUMNS = ["network", "parameters", "file bytes", "operations", "test error", "thesis error"]


@dataclasses.dataclass(frozen=True)
class Net:
    """WRN-``depth``-``widen``; with ``templates`` its soft-shared form."""

    depth: int
    widen: int
    templates: int | None = None
    dropout: float = 0.0
    thesis: float | None = None

    @property
    def recipe(self) -> SoftSharing | None:
        """Training as it is, or in templates; nothing is folded, similarities are written down."""
        if self.templates is None:
            return None
        return SoftSharing(self.templates, groups=SHARED, fold=None, finetune=0.0)


Nets = Mapping[str, Net]


@dataclasses.dataclass(frozen=True)
class Job:
    """One network on one seed."""

    name: str
    net: Net
    seed: int


def measured(
    job: Job, data: Splits, classes: int, epochs: float, augment: Callable[..., Any] | None,
    device: str | None, out: Path,
) -> Row:  # fmt: skip
    """What is kept of a run: the test error in percent, sizes, and the similarities over its epochs."""
    net, settings = job.net, PUBLISHED.settings("WRN")
    settings |= ({} if augment is None else {"augment": augment}) | (
        {} if device is None else {"device": device}
    )
    torch.manual_seed(job.seed)
    model = swrn(net.depth, net.widen, classes, net.dropout)
    folder = out / f"{job.name}-{job.seed}".replace(", ", "-").replace(" ", "_")
    result = tl.fit(
        model, data.train, test=data.test, recipe=net.recipe, epochs=epochs, keep="last", seed=job.seed,
        progress=False, out=folder, resume=True, **settings,
    )  # fmt: skip
    size = tl.deploy.measure(result.model.cpu(), data.test[0][:1], repeats=1)
    rows = [row for row in result.history if row.get("similarity")]
    return {
        "test": 100 * (1 - result.scores["test"].metric), "parameters": size.params,
        "file bytes": size.file_bytes, "operations": size.macs,
        "similarity": [{"epoch": row["epoch"], "groups": row["similarity"]} for row in rows],
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Order:
    """How much of an experiment is wanted."""

    out: Path
    seeds: int
    epochs: float | None
    images: int | None
    device: str | None


def side_by_side(
    name: str, nets: Nets, data: Splits, order: Order, classes: int = 10,
    augment: Callable[..., Any] | None = None,
) -> dict[str, list[Row]]:  # fmt: skip
    """Every network on every seed; finished runs are read from a record."""
    epochs = PUBLISHED.length("WRN", order.epochs)
    small = few(data, order.images)
    folder = order.out / f"{name}-{len(small.train[0])}-{epochs:g}"
    cells = Cells(folder / "cells.jsonl")
    work = partial(
        measured, data=small, classes=classes, epochs=epochs, augment=augment, device=order.device, out=folder
    )
    jobs = [Job(key, net, seed) for seed in range(order.seeds) for key, net in nets.items()]
    rows = cells.all({f"{job.name}, {job.seed}": partial(work, job) for job in jobs})
    return {key: rows[index :: len(nets)] for index, key in enumerate(nets)}


def told(title: str, figures: str, nets: Nets, results: Mapping[str, Sequence[Row]], order: Order) -> Row:
    """The result as its page takes it."""
    rows: list[Row] = [
        {
            "network": name, **{key: runs[0][key] for key in ("parameters", "file bytes", "operations")},
            "test error": spread([one["test"] for one in runs]), "thesis error": nets[name].thesis,
            "per seed": [one["test"] for one in runs],
        }
        for name, runs in results.items()
    ]  # fmt: skip
    said = ", ".join(
        f"{one['network']} {one['test error']['mean']:.2f} ± {one['test error']['sd']:.2f}" for one in rows
    )
    return {
        "title": title, "source": f"Savarese, Principled Approximation Methods, chapter 3, {figures}",
        "finding": f"Test error (%): {said}.",
        "scale": f"{PUBLISHED.length('WRN', order.epochs):g} epochs, {order.images or 50_000:,} images",
        "seeds": list(range(order.seeds)), "machine": machine(), "columns": COLUMNS, "rows": rows,
    }  # fmt: skip
