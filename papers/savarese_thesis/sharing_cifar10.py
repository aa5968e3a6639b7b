"""Soft sharing on CIFAR-10 at equal parameters and equal FLOPs (thesis Table 3.1, Figures 3.10–3.11)."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import avg_pool2d

from papers.common.arms import Row, machine, spread
from papers.common.cells import Cells
from papers.savarese_thesis import sharing_runs
from papers.savarese_thesis.pruning_runs import whole
from papers.savarese_thesis.sharing_runs import Net
from torchlift.data import Splits, crop_flip, load

TUNING_SEED = 1000
COLUMNS = ["network", "parameters", "file bytes", "operations", "cost", "rate", "test error", "thesis error"]


@dataclasses.dataclass(frozen=True)
class SharingPlan:
    """What is trained, on how much, for how long. ``plain`` has the parameters of ``shared``."""

    nets: Mapping[str, Net]
    plain: str
    shared: str
    images: int
    side: int
    epochs: float
    batch: int
    rates: tuple[float, ...]
    schedule: Any


SMALL = SharingPlan(
    {"WRN-16-1": Net(16, 1), "SWRN-28-1-2": Net(28, 1, 2)},
    "WRN-16-1", "SWRN-28-1-2", 1600, 16, 8.0, 32, (0.05, 0.1), "cosine",
)  # fmt: skip
NETS = {
    "WRN-28-10": Net(28, 10, thesis=4.00),
    "WRN-28-10, dropout": Net(28, 10, dropout=0.3, thesis=3.89),
    "SWRN-28-10-1": Net(28, 10, 1, thesis=4.01),
    "SWRN-28-10-2, dropout": Net(28, 10, 2, 0.3, 3.75),
    "SWRN-28-10": Net(28, 10, 6, thesis=3.74),
    "SWRN-28-10, dropout": Net(28, 10, 6, 0.3, 3.88),
    "SWRN-28-14-2, dropout": Net(28, 14, 2, 0.3, 3.69),
    "SWRN-28-14, dropout": Net(28, 14, 6, 0.3, 3.67),
    "SWRN-28-18-2, dropout": Net(28, 18, 2, 0.3, 3.43),
    "SWRN-28-18, dropout": Net(28, 18, 6, 0.3, 3.48),
}
"""Table 3.1."""


def halved_images(plan: SharingPlan, folder: str | None) -> Splits:
    """The first images, at the plan's size."""
    whole = load("cifar10", folder)

    def shrunk(pair: Any, count: int) -> Any:
        return avg_pool2d(pair[0][:count], 32 // plan.side), pair[1][:count]

    train, test = shrunk(whole.train, plan.images), shrunk(whole.test, 10_000 if plan.images > 5000 else 5000)
    return Splits(train, shrunk(whole.valid, plan.images // 4), test, whole.kind)


def measured(
    plan: SharingPlan, net: Net, data: Splits, rate: float, seed: int, epochs: float, out: Path
) -> Row:
    """A run of SGD with Nesterov momentum, decay 5e-4 (none on coefficients), crops and flips."""
    settings = {
        "optimizer": partial(torch.optim.SGD, lr=rate, momentum=0.9, nesterov=True, weight_decay=5e-4),
        "schedule": plan.schedule, "epochs": epochs, "batch_size": plan.batch,
        "augment": partial(crop_flip, padding=plan.side // 8),
    }  # fmt: skip
    result = sharing_runs.trained(net, data, settings, seed, out)
    more = {"valid": 100 * (1 - result.scores["valid"].metric)}
    return sharing_runs.kept(result, data) | more | {"flops": result.flops, "seconds": result.seconds}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Every network of Table 3.1 on every seed; the stand-in at equal FLOPs too."""
    if not stand_in:
        order = sharing_runs.Order(out, seeds or 5, epochs, images, device)
        title, figures = "Soft sharing on CIFAR-10", "Table 3.1, Figure 3.3"
        return sharing_runs.table("sharing-cifar10", title, figures, NETS, whole("cifar10", data), order)
    plan = dataclasses.replace(SMALL, epochs=epochs or SMALL.epochs, images=images or SMALL.images)
    return small(plan, halved_images(plan, data), out, list(range(seeds or 3)))


def small(plan: SharingPlan, data: Splits, out: Path, seeds: list[int]) -> Row:
    """The networks of a plan at their best rates, on validation data and a seed that is not reported."""
    folder = out / f"sharing-cifar10-{plan.images}-{plan.epochs:g}"
    cells = Cells(folder / "cells.jsonl")

    def one(name: str, net: Net, rate: float, seed: int, epochs: float = plan.epochs) -> Row:
        key = f"{name}, rate {rate}, seed {seed}"
        own = folder / key.replace(", ", "-").replace(" ", "_")
        return cells.get(key, partial(measured, plan, net, data, rate, seed, epochs, own))

    rates: dict[str, float] = {}
    for name, net in plan.nets.items():
        errors = {rate: one(name, net, rate, TUNING_SEED)["valid"] for rate in plan.rates}
        rates[name] = min(errors, key=errors.__getitem__)
    plain, equal = plan.plain, f"{plan.plain}, FLOPs of {plan.shared}"
    results: dict[str, list[Row]] = {name: [] for name in (*plan.nets, equal)}
    for seed in seeds:
        for name, net in plan.nets.items():
            results[name].append(one(name, net, rates[name], seed))
        longer = plan.epochs * results[plan.shared][0]["flops"] / results[plain][0]["flops"]
        results[equal].append(one(equal, plan.nets[plain], rates[plain], seed, longer))
    return as_record(plan, results, rates, seeds)


def as_record(
    plan: SharingPlan, results: Mapping[str, Sequence[Row]], rates: Mapping[str, float], seeds: list[int]
) -> Row:
    """The result as its page takes it."""
    first = results[plan.plain][0]
    rows = [row(plan, name, runs, rates[name.partition(",")[0]], first) for name, runs in results.items()]
    errors = {one["network"]: one["test error"] for one in rows}
    said = ", ".join(f"{name} {e['mean']:.2f} ± {e['sd']:.2f}" for name, e in errors.items())
    return {
        "title": "Soft sharing on CIFAR-10 at equal parameters and equal FLOPs",
        "source": "Savarese, Principled Approximation Methods, chapter 3, Table 3.1, Figures 3.10–3.11",
        "finding": f"Test error (%): {said}.",
        "scale": f"{plan.images} images of {plan.side}×{plan.side}, {plan.epochs:g} epochs; "
        f"{len(plan.rates)} rates tried for every network",
        "stand_in": True, "seeds": seeds, "machine": machine(), "columns": COLUMNS, "rows": rows,
        "matrices": matrices(results[plan.shared]),
        "notes": [
            "Equal epochs but for the row with another's FLOPs, whose network trained on until it had them.",
            "Cost: floating-point operations of training over those of the first network.",
        ],
    }  # fmt: skip


def row(plan: SharingPlan, name: str, runs: Sequence[Row], rate: float, first: Row) -> Row:
    """One network over its seeds."""
    net = plan.nets.get(name)
    kept = {key: runs[0][key] for key in ("parameters", "file bytes", "operations")}
    return {
        "network": name, **kept, "cost": round(runs[0]["flops"] / first["flops"], 3), "rate": rate,
        "test error": spread([one["test"] for one in runs]), "per seed": [one["test"] for one in runs],
        "thesis error": None if net is None else net.thesis,
    }  # fmt: skip


def matrices(runs: Sequence[Row]) -> list[Row]:
    """Similarities: of the first run at the start, midway and at the end; of the others at the end."""
    shown: list[tuple[str, Row]] = []
    for seed, one in enumerate(runs):
        steps = one["similarity"]
        chosen = sorted({0, len(steps) // 2, len(steps) - 1}) if seed == 0 else [len(steps) - 1]
        shown += [(f"seed {seed}, epoch {steps[n]['epoch']}", steps[n]["groups"]) for n in chosen]
    return [
        {"name": f"{title}, {group}", "values": values}
        for title, groups in shown
        for group, values in groups.items()
    ]
