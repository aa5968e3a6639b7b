"""``tl.auto`` against tuned plain training, and against the tutorials' chains at the same cost and size.

    python benchmarks/auto.py [digits lenet text] [--seeds 5] [--scale 1] [--limit both] [--out runs/auto]

Every arm spends the same FLOPs. Without a limit: ``auto`` against ``auto`` over plain training alone (its
rates by the same successive halving). With one: ``auto`` with ``bytes=`` against the chains that the
tutorials write by hand for that size, each with the whole budget, the best of them by its mean over the
seeds. ``--limit with`` or ``without``: one of the two; the record keeps what it says of the other.
``--scale``: a part of each budget. With ``--clock`` digits are also searched by the clock, to see how
well minutes are kept. Every piece is kept in ``--out``: the same command goes on where it stopped.
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

RESULTS = Path(__file__).parent / "results" / "auto.json"
MINUTES = 1.5


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its data, and how it is trained."""

    model: Callable[[], nn.Module]
    data: Callable[[int], tuple[Any, Any, Any]]
    budget: float
    bytes: int
    """The size that chains are held against ``auto`` at: about a tenth of the dense file."""
    settings: dict[str, Any]
    about: str


def digits(seed: int) -> tuple[Any, Any, Any]:
    """Train, validation, test; the split by the seed."""
    splits = tl.data.digits(seed)
    return splits.train, splits.valid, splits.test


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
    windows = [tl.data.windows(split, 32) for split in (tokens.train, tokens.valid, tokens.test)]
    (x, y), valid, test = windows
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:2000]
    return (x[drawn], y[drawn]), (valid[0][:400], valid[1][:400]), (test[0][:1000], test[1][:1000])


CASES = {
    "digits": Case(
        lambda: tl.models.MLP(64, 64, 64, 10),
        digits,
        200.0,
        3000,
        {"batch_size": 64, "optimizer": functools.partial(torch.optim.AdamW, lr=1e-3)},
        "MLP 64-64-64-10, digits",
    ),
    "lenet": Case(
        tl.models.LeNet5,
        images,
        42.0,
        25_000,
        {"batch_size": 64, "optimizer": functools.partial(torch.optim.AdamW, lr=1e-3)},
        "LeNet-5, 10,000 images of CIFAR-10",
    ),
    "text": Case(
        lambda: tl.models.GPT(50, context=32, width=48, depth=2, heads=4),
        text,
        42.0,
        25_000,
        {"batch_size": 32, "optimizer": functools.partial(torch.optim.AdamW, lr=3e-3)},
        "GPT of width 48 and depth 2, 2,000 windows of Penn Treebank characters",
    ),
}


def chains(case: Case) -> dict[str, Any]:
    """What the tutorials write by hand (docs/tutorials/shrink-a-cnn.md, the demo)."""
    recipes, bits = tl.recipes, tl.recipes.Smol(bytes=case.bytes)
    return {
        "channels, bits": recipes.Chain(recipes.ChannelPruning(ratio=0.5), bits),
        "norm, bits": recipes.Chain(tl.lifts.Normalize(), bits),
    }


def by_hand(case: Case, seed: int, name: str, out: Path) -> dict[str, Any]:
    """A chain with all of the budget, at the given rate, or what is left of that run."""
    file = out / f"{name}-{seed}.json"
    if file.exists():
        return json.loads(file.read_text())
    torch.manual_seed(seed)
    model, (train, valid, test) = case.model(), case.data(seed)
    settings: dict[str, Any] = {"schedule": "cosine", "keep": "best", "equal_cost": True, "progress": False}
    result = tl.fit(
        model, train, valid, test=test, recipe=chains(case)[name], epochs=case.budget, seed=seed,
        out=out / f"{name}-{seed}", resume=True, **(settings | case.settings),
    )  # fmt: skip
    size = (out / f"{name}-{seed}" / "model.tl").stat().st_size
    scores = {"metric": result.scores["valid"].metric, "test": result.scores["test"].metric}
    data = {"key": name, **scores, "bytes": size, "cost": result.cost}
    file.write_text(json.dumps(data))
    return data


def searched(case: Case, seed: int, arm: str, out: Path) -> dict[str, Any]:
    """One search, or what is left of it."""
    file = out / f"{arm}-{seed}.json"
    if file.exists():
        return json.loads(file.read_text())
    torch.manual_seed(seed)
    model, (train, valid, test) = case.model(), case.data(seed)
    budget: dict[str, Any] = {"minutes": MINUTES} if arm == "clock" else {"budget": case.budget}
    candidates = {} if arm == "plain" else None
    size = case.bytes if arm == "sized" else None
    started = time.perf_counter()
    result = tl.auto(
        model, train, valid, test=test, candidates=candidates, bytes=size, seed=seed,
        out=out / f"{arm}-{seed}", resume=True, **budget, **case.settings,
    )  # fmt: skip
    data = result.data()
    data |= {"seconds": time.perf_counter() - started, "rows": len(data["rows"])}
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


Pieces = dict[str, list[dict[str, Any]]]
"""What each arm has reached, seed by seed."""


def tests(rows: list[dict[str, Any]]) -> list[float]:
    """Test metrics, of searches or of single runs."""
    return [row.get("chosen", row)["test"] for row in rows]


def without_limit(case: Case, pieces: Pieces) -> dict[str, Any]:
    """``auto`` and tuned plain training."""
    auto, plain = ([one["chosen"] for one in pieces[arm]] for arm in ("auto", "plain"))
    return {
        "budget": case.budget,
        "unit": "plain epochs, each arm",
        "seeds": list(range(len(auto))),
        "spent": [one["spent"] / one["budget"] for one in pieces["auto"]],
        "trials": [one["rows"] for one in pieces["auto"]],
        "auto, test": spread(tests(pieces["auto"])),
        "tuned plain, test": spread(tests(pieces["plain"])),
        "auto to tuned plain": difference(tests(pieces["auto"]), tests(pieces["plain"])),
        "file, plain over auto": [b["bytes"] / a["bytes"] for a, b in zip(auto, plain, strict=True)],
        "choices": [brief(row) for row in auto],
        "plain": [brief(row) for row in plain],
    }


def with_limit(case: Case, pieces: Pieces) -> dict[str, Any]:
    """``auto`` and the chains at a size."""
    sized, hand = [one["chosen"] for one in pieces["sized"]], chains(case)
    best = max(hand, key=lambda name: statistics.fmean(tests(pieces[name])))
    return {
        "budget": case.budget,
        "unit": "plain epochs, each arm",
        "seeds": list(range(len(sized))),
        "bytes": case.bytes,
        "spent": [one["spent"] / one["budget"] for one in pieces["sized"]],
        "trials": [one["rows"] for one in pieces["sized"]],
        "auto, test": spread(tests(pieces["sized"])),
        "chains, test": {name: spread(tests(pieces[name])) for name in hand},
        "best chain": best,
        "auto to the best chain": difference(tests(pieces["sized"]), tests(pieces[best])),
        "auto's files": [row["bytes"] for row in sized],
        "chains' files": {name: [row["bytes"] for row in pieces[name]] for name in hand},
        "choices": [brief(row) for row in sized],
        "chains": {name: tests(pieces[name]) for name in hand},
        "dropped": [one["dropped"] for one in pieces["sized"]],
    }


def recorded(name: str, about: str, limit: str, figures: dict[str, Any]) -> None:
    """Write one part of the record; the others stay."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    entry = results.setdefault(name, {}) | {"about": about, limit: figures}
    results |= {name: entry, "machine": {"torch": torch.__version__, "threads": 1}}
    RESULTS.write_text(json.dumps(results, indent=1, default=str) + "\n")


def main() -> None:
    """Measure, and write what is there after every seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of each budget")
    parser.add_argument("--limit", choices=("with", "without", "both"), default="both")
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/auto"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.cases:
        case = dataclasses.replace(CASES[name], budget=options.scale * CASES[name].budget)
        folder = options.out / f"{name}-{case.budget:g}"
        folder.mkdir(parents=True, exist_ok=True)
        runs = dict.fromkeys(("auto", "plain", "sized"), searched) | dict.fromkeys(chains(case), by_hand)
        searches = {
            "without a limit": (without_limit, ("auto", "plain")),
            "with a limit": (with_limit, ("sized", *chains(case))),
        }
        for limit in (limit for limit in searches if options.limit in ("both", limit.split()[0])):
            summary, arms = searches[limit]
            pieces: Pieces = {arm: [] for arm in arms}
            for seed in range(options.seeds):
                for arm in arms:
                    pieces[arm].append(runs[arm](case, seed, arm, folder))
                recorded(name, case.about, limit, summary(case, pieces))
                print(name, limit, seed, {arm: tests(rows) for arm, rows in pieces.items()}, flush=True)
        if options.clock and name == "digits":
            kept = [searched(case, seed, "clock", folder) for seed in range(options.seeds)]
            spent = [one["spent"] / one["budget"] for one in kept]
            results = json.loads(RESULTS.read_text())
            results["clock"] = {"minutes": MINUTES, "spent": spent, "seeds": list(range(options.seeds))}
            RESULTS.write_text(json.dumps(results, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
