"""``tl.auto`` against tuned plain training: digits, LeNet-5 on 10,000 images of CIFAR-10, a transformer.

    python benchmarks/auto.py [digits lenet text] [--seeds 3] [--out runs/auto]

Both arms spend the same FLOPs: ``auto`` over all candidates, and ``auto`` over plain training alone (its
rates by the same successive halving). No constraint: the choice is by validation data, the smallest file down
to the lower bound of the best accuracy. What the same trials would give at a tenth of plain's file stands
beside it. On digits the search is also run by the clock, to see how well minutes are kept. Every
piece is kept in ``--out``: the same command goes on where it stopped.
"""

import argparse
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from torchlift.experiments.comparison import paired
from torchlift.experiments.constraints import Constraints, Delivered, choose

RESULTS = Path(__file__).parent / "results" / "auto.json"
MINUTES = 1.5


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its data, and how it is trained."""

    model: Callable[[], nn.Module]
    data: Callable[[int], tuple[Any, Any, Any]]
    budget: float
    settings: dict[str, Any]
    about: str


def digits(seed: int) -> tuple[Any, Any, Any]:
    """Train, validation, test; the split by the seed."""
    parts = tl.data.digits(seed)
    return parts.train, parts.valid, parts.test


def images(seed: int) -> tuple[Any, Any, Any]:
    """8,000 images to train on and 2,000 to choose by, drawn by the seed; 5,000 of the test images."""
    (x, y), (test_x, test_y) = tl.data.cifar10()
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:10_000]
    mean, std = torch.tensor([0.49, 0.48, 0.45]), torch.tensor([0.25, 0.24, 0.26])
    scale = functools.partial(tl.data.normalize, mean=mean, std=std)
    train, valid = drawn[:8000], drawn[8000:]
    return (scale(x[train]), y[train]), (scale(x[valid]), y[valid]), (scale(test_x[:5000]), test_y[:5000])


def text(seed: int) -> tuple[Any, Any, Any]:
    """Windows of 32 characters of Penn Treebank: 2,000 drawn by the seed, 400 and 1,000 for the rest."""
    tokens = tl.data.ptb()
    windows = [tl.data.windows(part, 32) for part in (tokens.train, tokens.valid, tokens.test)]
    (x, y), valid, test = windows
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:2000]
    return (x[drawn], y[drawn]), (valid[0][:400], valid[1][:400]), (test[0][:1000], test[1][:1000])


CASES = {
    "digits": Case(
        lambda: tl.models.MLP(64, 64, 64, 10),
        digits,
        200.0,
        {"batch_size": 64, "optimizer": functools.partial(torch.optim.AdamW, lr=1e-3)},
        "MLP 64-64-64-10, digits",
    ),
    "lenet": Case(
        tl.models.LeNet5,
        images,
        42.0,
        {"batch_size": 64, "optimizer": functools.partial(torch.optim.AdamW, lr=1e-3)},
        "LeNet-5, 10,000 images of CIFAR-10",
    ),
    "text": Case(
        lambda: tl.models.GPT(50, context=32, width=48, depth=2, heads=4),
        text,
        42.0,
        {"batch_size": 32, "optimizer": functools.partial(torch.optim.AdamW, lr=3e-3)},
        "GPT of width 48 and depth 2, 2,000 windows of Penn Treebank characters",
    ),
}


def searched(case: Case, seed: int, arm: str, out: Path) -> dict[str, Any]:
    """One search, or what is left of it."""
    file = out / f"{arm}-{seed}.json"
    if file.exists():
        return json.loads(file.read_text())
    torch.manual_seed(seed)
    model, (train, valid, test) = case.model(), case.data(seed)
    budget: dict[str, Any] = {"minutes": MINUTES} if arm == "clock" else {"budget": case.budget}
    candidates = {} if arm == "plain" else None
    started = time.perf_counter()
    found = tl.auto(
        model, train, valid, test=test, candidates=candidates, seed=seed,
        out=out / f"{arm}-{seed}", resume=True, **budget, **case.settings,
    )  # fmt: skip
    data = found.data()
    rows = [Delivered(**row) for row in data["rows"] if not row["reason"] and row["rung"] >= 0]
    tenth = Constraints(bytes=max(row.bytes for row in rows if row.name == "plain") / 10)
    small, why = choose(rows, tenth, 0)
    data |= {"seconds": time.perf_counter() - started, "rows": len(data["rows"])}
    data |= {"at a tenth": dataclasses.asdict(small), "why a tenth": why}
    file.write_text(json.dumps(data, default=str))
    return data


def spread(values: list[float]) -> dict[str, float]:
    """Mean and sample standard deviation."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def difference(mine: list[float], control: list[float]) -> dict[str, float]:
    """Paired by seed, with a 95 % interval."""
    return dataclasses.asdict(paired([a - b for a, b in zip(mine, control, strict=True)]))


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """What a table needs of a delivered model."""
    return {name: row[name] for name in ("key", "metric", "test", "bytes", "latency_ms", "cost")}


def summary(case: Case, pieces: dict[str, list[dict[str, Any]]], seeds: list[int]) -> dict[str, Any]:
    """The two arms side by side, seed by seed."""
    auto, plain = pieces["auto"], pieces["plain"]
    mine, theirs, tenth = ([one[key] for one in some] for some, key in
                           ((auto, "chosen"), (plain, "chosen"), (auto, "at a tenth")))  # fmt: skip
    score = [row["test"] for row in mine], [row["test"] for row in theirs], [row["test"] for row in tenth]
    return {
        "about": case.about,
        "seeds": seeds,
        "budget": case.budget,
        "unit": "plain epochs, each arm",
        "spent": [one["spent"] / one["budget"] for one in auto],
        "trials": [one["rows"] for one in auto],
        "auto, test": spread(score[0]),
        "tuned plain, test": spread(score[1]),
        "auto to tuned plain": difference(score[0], score[1]),
        "at a tenth of the file, test": spread(score[2]),
        "a tenth to tuned plain": difference(score[2], score[1]),
        "file, plain over auto": [b["bytes"] / a["bytes"] for a, b in zip(mine, theirs, strict=True)],
        "file, plain over a tenth": [b["bytes"] / a["bytes"] for a, b in zip(tenth, theirs, strict=True)],
        "choices": [brief(row) for row in mine],
        "plain": [brief(row) for row in theirs],
        "tenths": [brief(row) | {"why": one["why a tenth"]} for row, one in zip(tenth, auto, strict=True)],
        "fronts": [[brief(row) for row in one["front"]] for one in auto],
        "dropped": [one["dropped"] for one in auto],
    }


def main() -> None:
    """Measure, and write what is there after every piece."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/auto"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(given.seeds):
        for name in given.cases:
            case, folder = CASES[name], given.out / name
            folder.mkdir(parents=True, exist_ok=True)
            arms = ("auto", "plain", "clock") if name == "digits" else ("auto", "plain")
            for arm in arms:
                done = searched(case, seed, arm, folder)
                print(name, seed, arm, done["chosen"]["key"], done["chosen"]["test"], flush=True)
            seeds = list(range(seed + 1))
            pieces = {arm: [searched(case, s, arm, folder) for s in seeds] for arm in arms}
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            results |= {
                name: summary(case, pieces, seeds),
                "machine": {"torch": torch.__version__, "threads": 1},
            }
            if "clock" in pieces:
                kept = [one["spent"] / one["budget"] for one in pieces["clock"]]
                results["clock"] = {"minutes": MINUTES, "spent": kept, "seeds": seeds}
            RESULTS.write_text(json.dumps(results, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
