"""Wide ResNets with and without shared templates: one durable run, and what is kept of it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torchlift as tl
from papers.common.arms import Row, machine, spread, without_arms
from papers.common.cells import Cells
from papers.common.protocol import few, protocol, share_of, thinned
from torchlift.data import Splits
from torchlift.experiments.arm import Setup
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


def trained(
    net: Net, data: Any, settings: Mapping[str, Any], seed: int, out: Path, classes: int = 10
) -> tl.Result:
    """One durable run of a network."""
    setup = Setup(partial(swrn, net.depth, net.widen, classes, net.dropout), data, settings)
    return setup.run(tl.Arm(net.recipe), seed, out, keep="last", progress=False, resume=True)


def kept(result: tl.Result, data: Splits) -> Row:
    """What is kept of a run: the test error in percent, sizes, and the similarities over its epochs."""
    size = tl.deploy.measure(result.model.cpu(), data.test[0][:1], repeats=1)
    rows = [row for row in result.history if row.get("similarity")]
    return {
        "test": 100 * (1 - result.scores["test"].metric), "parameters": size.params,
        "file bytes": size.file_bytes, "operations": size.macs,
        "similarity": [{"epoch": row["epoch"], "groups": row["similarity"]} for row in rows],
    }  # fmt: skip


def measured(net: Net, data: Splits, settings: Mapping[str, Any], classes: int, seed: int, out: Path) -> Row:
    """What is kept of a network that is trained without validation data."""
    return kept(trained(net, (data.train, None, data.test), settings, seed, out, classes), data)


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
    settings = PUBLISHED.settings("WRN") | {"epochs": epochs}
    settings |= {} if augment is None else {"augment": augment}
    settings |= {} if order.device is None else {"device": order.device}
    rows = Cells(folder / "cells.jsonl").all(
        {
            f"{key}, {seed}": partial(
                measured, net, small, settings, classes, seed,
                folder / f"{key}-{seed}".replace(", ", "-").replace(" ", "_"),
            )
            for seed in range(order.seeds)
            for key, net in nets.items()
        }
    )  # fmt: skip
    return {key: rows[index :: len(nets)] for index, key in enumerate(nets)}


def table(name: str, title: str, figures: str, nets: Nets, data: Splits, order: Order, **more: Any) -> Row:
    """The networks of a table; few of them, for they are large, where little of their training is wanted."""
    length, count = PUBLISHED.length("WRN", order.epochs), len(data.train[0])
    share = share_of(length, PUBLISHED.length("WRN", None), min(order.images or count, count), count)
    some = {key: nets[key] for key in thinned(list(nets), share)}
    record = as_record(title, figures, some, side_by_side(name, some, data, order, **more), order)
    return record | without_arms(nets, some)


def as_record(
    title: str, figures: str, nets: Nets, results: Mapping[str, Sequence[Row]], order: Order
) -> Row:
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
