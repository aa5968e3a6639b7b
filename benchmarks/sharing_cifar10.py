"""Soft sharing on CIFAR-10 at equal parameters and at equal FLOPs, at a small scale (after Table 3.1).

python benchmarks/sharing_cifar10.py --data FOLDER --json benchmarks/results/sharing_cifar10.json

WRN-16-1, SWRN-28-1-2 (as many parameters as WRN-16-1, in the depth of WRN-28-1) and WRN-28-1, on images of
half the size. Each takes the rate that is best on validation data with a seed that is not reported. WRN-16-1
is trained twice: for equal epochs, and for the FLOPs that SWRN-28-1-2 took.
"""

import argparse
import dataclasses
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import avg_pool2d

import torchlift as tl

RATES = (0.02, 0.05, 0.1)
SCALE = {"train": 2000, "valid": 500, "test": 2000, "side": 16, "epochs": 8, "batch": 64, "width": 1}
SHARE = tl.lifts.Templates(k=2, groups=tl.models.SHARED, store="templates")
ARMS: dict[str, tuple[int, tl.lifts.Templates | None]] = {
    "WRN-16-1": (16, None),
    "SWRN-28-1-2": (28, SHARE),
    "WRN-28-1": (28, None),
}


def data(folder: str) -> dict[str, Any]:
    """Parts of CIFAR-10 at half its size."""
    whole = tl.data.load("cifar10", folder)

    def part(pair: Any, count: int) -> Any:
        return avg_pool2d(pair[0][:count], 32 // SCALE["side"]), pair[1][:count]

    return {name: part(getattr(whole, name), SCALE[name]) for name in ("train", "valid", "test")}


def fit(arm: str, sets: dict[str, Any], rate: float, seed: int, epochs: float) -> Any:
    """One run."""
    depth, recipe = ARMS[arm]
    torch.manual_seed(seed)
    return tl.fit(
        tl.models.swrn(depth, SCALE["width"]),
        sets["train"],
        sets["valid"],
        test=sets["test"],
        recipe=recipe,
        optimizer=partial(torch.optim.SGD, lr=rate, momentum=0.9, nesterov=True, weight_decay=5e-4),
        schedule="cosine",
        epochs=epochs,
        batch_size=SCALE["batch"],
        augment=partial(tl.data.crop_flip, padding=2),
        seed=seed,
        progress=False,
    )


def row(arm: str, seed: int, rate: float, result: Any, example: Any) -> dict[str, Any]:
    """What is kept of a run."""
    size = tl.deploy.measure(result.model, example, repeats=1)
    return {
        "arm": arm,
        "seed": seed,
        "rate": rate,
        "test": result.scores["test"].metric,
        "flops": result.flops,
        "parameters": size.params,
        "file_bytes": size.file_bytes,
        "macs": size.macs,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and spreads by arm."""
    table: dict[str, Any] = {}
    for arm in dict.fromkeys(one["arm"] for one in rows):
        mine = [one for one in rows if one["arm"] == arm]
        scores = [one["test"] for one in mine]
        sd = statistics.stdev(scores) if len(scores) > 1 else 0.0
        table[arm] = {key: mine[0][key] for key in ("rate", "parameters", "file_bytes", "macs", "flops")}
        table[arm] |= {"test": statistics.mean(scores), "sd": sd, "seeds": len(scores)}
    return table


def main() -> None:
    """Tune, run, write; what is finished is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/sharing_cifar10.json"))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    sets = data(args.data)
    example = sets["test"][0][:1]
    rates: dict[str, float] = {}
    for arm in ARMS:
        tried = {rate: fit(arm, sets, rate, 1000, SCALE["epochs"]).scores["valid"].metric for rate in RATES}
        rates[arm] = max(tried, key=tried.__getitem__)
        print(arm, {rate: round(score, 3) for rate, score in tried.items()}, flush=True)
    rows: list[dict[str, Any]] = []
    for seed in range(args.seeds):
        for arm, rate in rates.items():
            rows.append(row(arm, seed, rate, fit(arm, sets, rate, seed, SCALE["epochs"]), example))
            print(arm, seed, rows[-1]["test"], flush=True)
        small, shared = (next(r for r in rows if r["arm"] == arm) for arm in ("WRN-16-1", "SWRN-28-1-2"))
        epochs = SCALE["epochs"] * shared["flops"] / small["flops"]
        found = fit("WRN-16-1", sets, rates["WRN-16-1"], seed, epochs)
        rows.append(row("WRN-16-1, equal FLOPs", seed, rates["WRN-16-1"], found, example))
        result = {
            "scale": SCALE,
            "rates": RATES,
            "lift": str(dataclasses.asdict(SHARE)),
            "table": summary(rows),
        }
        args.json.write_text(json.dumps(result | {"runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
