"""Shortest paths with a curriculum: shared, plain and folded networks (thesis Figures 3.9 and 3.12)."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from papers.common.arms import Row, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import protocol
from torchlift.lifts import Templates
from torchlift.models import GridNet

PUBLISHED = protocol("savarese_thesis", "Figure 3.9").settings("Adam")
FOLD = 0.9
ARMS: dict[str, Templates | None] = {
    "cnn": None,
    "shared": Templates(k=None),
    "shared, recurrence 0.01": Templates(k=None, recurrence=0.01),
    "one template": Templates(k=1),
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Grids, network, and the epochs of all five phases together."""

    size: int = 12
    width: int = 8
    layers: int = 16
    samples: int = 800
    held_out: int = 400
    epochs: float = 40
    batch: int = 32
    device: str = "cpu"


SMALL, FULL = Size(), Size(32, 32, 20, 5000, 1000, 250, PUBLISHED["batch_size"])
PHASES = 5


def train(problem: tl.Problem, data: Any, size: Size, optimizer: Any, seed: int) -> None:
    """One phase."""
    x, y = data
    order = torch.Generator().manual_seed(seed)
    problem.train()
    left = max(1, round(size.epochs / PHASES * math.ceil(len(x) / size.batch)))
    while left:
        batches = torch.randperm(len(x), generator=order).split(size.batch)[:left]
        left -= len(batches)
        for index in batches:
            optimizer.zero_grad()
            problem((x[index].to(size.device), y[index].to(size.device))).backward()
            optimizer.step()


@torch.no_grad()
def score(problem: tl.Problem, data: Any) -> float:
    """F1 over all samples."""
    problem.eval()
    home = next(problem.parameters()).device
    return float(
        tl.data.f1(torch.cat([problem.predict(x.to(home)).cpu() for x in data[0].split(100)]), data[1])
    )


def folded(lift: Templates, problem: tl.Problem) -> tuple[tl.Problem, Row]:
    """The network with one stored weight for layers that are alike, and what it saved."""
    way = dataclasses.replace(lift, fold=FOLD)
    small, rows = way.project(problem), way.folds(problem)
    model = small.body()
    assert model is not None
    return small, {
        "stored_weights": len({row.stored for row in rows}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "largest_error": max(row.error for row in rows),
    }


def likeness(problem: tl.Problem) -> list[list[float]]:
    """The similarity of every pair of layers."""
    return [[round(v, 3) for v in line] for line in tl.analyze.similarity(problem)["blocks"].tolist()]


def trained(arm: str, seed: int, size: Size) -> Row:
    """All phases of one network: Adam, 0.01, constant."""
    phases = tl.data.curriculum(size.samples, seed=seed, size=size.size)
    held_out = tl.data.curriculum(size.held_out, seed=1000 + seed, size=size.size)
    torch.manual_seed(seed)
    model = GridNet(size.layers, size.width)
    tl.models.initialize(model, "kaiming")
    lift = ARMS[arm]
    problem: tl.Problem = tl.Task(model, "bce")
    problem = (problem if lift is None else lift.lift(problem)).to(size.device)
    optimizer = PUBLISHED["optimizer"](tl.groups(problem, {"*": {}}))
    rows: list[Row] = []
    for distance, data in phases.items():
        train(problem, data, size, optimizer, seed)
        row: Row = {"distance": distance, "f1": score(problem, held_out[distance])}
        if lift is not None:
            small, saved = folded(lift, problem)
            row |= {"folded_f1": score(small, held_out[distance]), **saved, "similarity": likeness(problem)}
        rows.append(row)
    return {
        "arm": arm,
        "seed": seed,
        "phases": rows,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def sized(size: Size, epochs: float | None, images: int | None, device: str | None) -> Size:
    """The same with fewer epochs in all, or fewer grids of each phase, on a device."""
    samples = images or size.samples
    held_out = min(size.held_out, math.ceil(size.held_out / size.samples * samples))
    return dataclasses.replace(
        size, epochs=epochs or size.epochs, samples=samples, held_out=held_out, device=device or size.device
    )


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Every arm through all phases on every seed; ``images`` are grids of each phase."""
    del data
    size = sized(SMALL if stand_in else FULL, epochs, images, device)
    said = "-".join(str(value) for value in dataclasses.astuple(size))
    cells, numbers = Cells(out / f"shortest-paths-{said}.jsonl"), list(range(seeds or 3))
    runs = cells.all(
        {f"{arm}, seed {seed}": partial(trained, arm, seed, size) for seed in numbers for arm in ARMS}
    )
    return as_record(runs, size, numbers, stand_in)


def table(runs: Sequence[Row]) -> list[Row]:
    """A row per network, as it is and folded: F1 after each phase, mean and spread."""
    rows: list[Row] = []
    for arm in dict.fromkeys(one["arm"] for one in runs):
        mine = [one for one in runs if one["arm"] == arm]
        for key, name in (("f1", arm), ("folded_f1", f"{arm}, folded")):
            if key not in mine[0]["phases"][0]:
                continue
            whole = [one["parameters"] for one in mine]
            small = whole if key == "f1" else [one["phases"][-1]["parameters"] for one in mine]
            phases = zip(*(one["phases"] for one in mine), strict=True)
            f1 = {f"distance {p[0]['distance']}": spread([row[key] for row in p]) for p in phases}
            rows.append({"network": name, "parameters": spread(small), **f1})
    return rows


def as_record(runs: Sequence[Row], size: Size, seeds: list[int], stand_in: bool) -> Row:
    """The result as its page takes it."""
    rows = table(runs)
    last = list(rows[0])[-1]
    said = ", ".join(f"{row['network']} {row[last]['mean']:.3f} ± {row[last]['sd']:.3f}" for row in rows)
    distances = [phase["distance"] for phase in runs[0]["phases"]]
    curves = [
        {
            "name": row["network"], "x": distances,
            "y": [row[f"distance {d}"]["mean"] for d in distances],
            "band": {
                side: [row[f"distance {d}"]["mean"] + sign * row[f"distance {d}"]["sd"] for d in distances]
                for side, sign in (("low", -1), ("high", 1))
            },
        }
        for row in rows
    ]  # fmt: skip
    matrices = [
        {"name": f"{one['arm']}, distance {phase['distance']}", "values": phase["similarity"]}
        for one in runs
        if one["seed"] == seeds[0]
        for phase in (one["phases"][0], one["phases"][-1])
        if "similarity" in phase
    ]  # fmt: skip
    return {
        "title": "Shortest paths: shared, plain and folded networks",
        "source": "Savarese, Principled Approximation Methods, chapter 3, Figures 3.9 and 3.12",
        "finding": f"F1 on held-out grids after the last phase: {said}.",
        "stand_in": stand_in,
        "scale": f"{size.size}×{size.size} grids, {size.layers} layers of {size.width} channels, "
        f"{size.samples} samples and {size.epochs / PHASES:g} epochs in each of five phases, equal for all",
        "seeds": seeds, "machine": machine(), "columns": list(rows[0]), "rows": rows, "curves": curves,
        "x_label": "largest distance of the query points", "y_label": "F1", "matrices": matrices,
        "notes": [f"Folded: one stored weight for layers whose coefficients reach {FOLD}, not trained on."],
        "runs": list(runs),
    }  # fmt: skip
