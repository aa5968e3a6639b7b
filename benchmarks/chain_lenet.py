"""Pruned, then quantised: LeNet-5 on CIFAR-10, crops and flips, against the dense model of the same budget.

python benchmarks/chain_lenet.py --work runs/chain_lenet --out benchmarks/results/chain_lenet.json

Sizes are those of packed files on disk, loaded again before they are tested. Every arm is a durable run:
started again, the script goes on where it stopped, and finished arms are packed and measured anew.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from torchlift.data import Splits, crop_flip
from torchlift.models import LeNet5
from torchlift.recipes import Chain, ContinuousSparsification, Smol

RATE, DECAY = 5e-2, 5e-4  # those of the dense control, chosen by `torchlift reproduce search-lenet`


def chain(options: argparse.Namespace) -> Chain:
    """Zeros first, then bits until the file has the asked size."""
    return Chain(
        {
            "prune": ContinuousSparsification(sparsity=options.sparsity, finetune=0.0),
            "bits": Smol(bytes=options.bytes, finetune=0.5),
        },
        shares={"prune": 0.4, "bits": 0.6},
    )


def run(name: str, recipe: Any, seed: int, data: Splits, options: argparse.Namespace) -> dict[str, Any]:
    """One arm: trained, packed, loaded, tested."""
    torch.manual_seed(seed)
    result = tl.fit(
        LeNet5(init="xavier"),
        data.train,
        data.valid,
        recipe=recipe,
        epochs=options.epochs,
        seed=seed,
        optimizer=partial(torch.optim.SGD, lr=RATE, momentum=0.9, weight_decay=DECAY),
        schedule="cosine",
        augment=crop_flip,
        equal_cost=True,
        batch_size=128,
        progress=False,
        out=options.work / f"{name}-{seed}",
        resume=True,
    )
    path = options.work / f"{name}-{seed}.tl"
    size = tl.deploy.save(result.model, path)
    assert size == path.stat().st_size
    weights = [p for p in result.model.parameters() if p.ndim > 1]
    return {
        "arm": name,
        "seed": seed,
        "file_bytes": size,
        "accuracy": round(accuracy(tl.deploy.load(path), data.test), 4),
        "zeros": round(sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights), 4),
        "values": [int(w.unique().numel()) for w in weights],
        "cost_epochs": round(result.cost, 3),
        "bits": result.history[-1].get("bits"),
    }


@torch.no_grad()
def accuracy(model: torch.nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Of a loaded model, on the test images."""
    x, y = test
    right = [
        (model.eval()(a).argmax(1) == b).float() for a, b in zip(x.split(500), y.split(500), strict=True)
    ]
    return float(torch.cat(right).mean())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios and points per seed that has both arms, and their means."""
    by = {(row["arm"], row["seed"]): row for row in rows}
    seeds = [seed for arm, seed in by if arm == "chain" and ("dense", seed) in by]
    ratios = [by["dense", s]["file_bytes"] / by["chain", s]["file_bytes"] for s in seeds]
    lost = [100 * (by["dense", s]["accuracy"] - by["chain", s]["accuracy"]) for s in seeds]
    if not seeds:
        return {}
    return {
        "seeds": seeds,
        "ratio": [round(r, 2) for r in ratios],
        "points_lost": [round(p, 2) for p in lost],
        "mean_ratio": round(statistics.fmean(ratios), 2),
        "mean_points_lost": round(statistics.fmean(lost), 2),
    }


def main() -> None:
    """Run all arms, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sparsity", type=float, default=0.8)
    parser.add_argument("--bytes", type=float, default=9300)
    parser.add_argument("--images", type=int, help="fewer training images, for a trial")
    parser.add_argument("--work", type=Path, default=Path("runs/chain_lenet"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = tl.data.load("cifar10")
    train, valid = (t[: options.images] for t in data.train), (t[:2000] for t in data.valid)
    data = Splits(tuple(train), tuple(valid), data.test, data.kind)  # no arm is chosen by validation
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name, recipe in (("dense", None), ("chain", chain(options))):
            rows.append(run(name, recipe, seed, data, options))
            print(json.dumps(rows[-1]), flush=True)
            whole = len(rows) == 2 * options.seeds
            text = json.dumps(
                {
                    "what": "LeNet-5, CIFAR-10, crops, flips: pruned and quantised against dense",
                    "scale": f"{options.epochs:g} epochs of {len(data.train[0])} images an arm, one thread",
                    "complete": whole,
                    "sparsity_asked": options.sparsity,
                    "bytes_asked": options.bytes,
                    "rate": RATE,
                    "decay": DECAY,
                    "torch": torch.__version__,
                    **summary(rows),
                    "rows": rows,
                },
                indent=1,
            )
            if options.out:
                options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
