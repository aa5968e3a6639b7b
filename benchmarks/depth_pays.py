"""Does training deeper and merging back pay? `Deepened` against plain training at equal cost, both tuned.

python benchmarks/depth_pays.py --seeds 5 --scale 1 --out benchmarks/results/depth_pays.json

The teacher–student task of neural lifting's Table 3 (a student of one block, 8,769 parameters; a teacher of
seven). Layers are inserted by critical lifting, their activation fades to a line, and they are merged. Every
arm gets the cost of so many plain epochs, Adam with a cosine, and the learning rate that is best on
validation data over all teachers; test errors are of the best epoch there, paired by teacher.
"""

import argparse
import json
import math
import os
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from torchlift.recipes import Deepened
from torchlift.run.comparison import T975

RATES = (1e-3, 3e-3, 6e-3)
ARMS: dict[str, Any] = {
    "plain": None,
    "deeper after linear2": Deepened("trunk.block1.linear2", finetune=0.25),
    "deeper, halfway": Deepened("trunk.block1.linear2", base=0.25, finetune=0.5),
}


def run(name: str, lr: float, seed: int, epochs: float) -> dict[str, Any]:
    """One arm at one rate on one teacher."""
    splits = tl.data.teacher_student(7, seed=seed)
    torch.manual_seed(seed)
    result = tl.fit(
        tl.models.BlockNet(1),
        splits.train,
        splits.valid,
        test=splits.test,
        recipe=ARMS[name],
        loss="mse",
        optimizer=partial(torch.optim.Adam, lr=lr),
        schedule="cosine",
        keep="best",
        epochs=epochs,
        equal_cost=True,
        batch_size=100,
        seed=seed,
        progress=False,
    )
    scores = {part: score.loss for part, score in result.scores.items()}
    return {"arm": name, "lr": lr, "seed": seed, "cost": result.cost, **scores}


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each arm at its best rate: test errors, and the mean of log-ratios to plain with its 95 % interval."""
    found: dict[str, dict[str, Any]] = {}
    for name in ARMS:
        by_rate = {lr: [r for r in rows if r["arm"] == name and r["lr"] == lr] for lr in RATES}
        best = min(RATES, key=lambda lr: statistics.mean(math.log(r["valid"]) for r in by_rate[lr]))
        found[name] = {"lr": best, "test": [r["test"] for r in by_rate[best]]}
    plain = found["plain"]["test"]
    for one in found.values():
        logs = [math.log(a / b) for a, b in zip(one["test"], plain, strict=True)]
        mean = statistics.mean(logs)
        wide = T975[len(logs) - 2] * statistics.stdev(logs) / len(logs) ** 0.5 if len(logs) > 1 else math.nan
        one |= {"ratio": math.exp(mean), "low": math.exp(mean - wide), "high": math.exp(mean + wide)}
    return found


def main() -> None:
    """Run every arm, rate and teacher; print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="not needed: the data are made")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 30 plain epochs for every arm")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/depth_pays.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    epochs = 30 * given.scale
    rows: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for name in ARMS:
            rows += [run(name, lr, seed, epochs) for lr in RATES]
            print(rows[-len(RATES) :], flush=True)
    record = {
        "title": "Training deeper by critical lifting and merging back, teacher–student",
        "scale": f"{epochs:g} plain epochs for every arm, one student block, {given.seeds} teachers of seven",
        "seeds": list(range(given.seeds)),
        "command": f"python benchmarks/depth_pays.py --seeds {given.seeds} --scale {given.scale:g}",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "summary": summary(rows),
        "rows": rows,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    for name, one in record["summary"].items():
        print(f"{name}: lr {one['lr']:g}, ratio {one['ratio']:.3f} ({one['low']:.3f} … {one['high']:.3f})")


if __name__ == "__main__":
    main()
