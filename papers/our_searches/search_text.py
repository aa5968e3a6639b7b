"""What was tried on text: a small transformer and an LSTM on Penn Treebank characters."""

from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import AdamW

import torchlift as tl
from papers.common.arms import Row, machine, table
from papers.common.protocol import few, share_of, thinned
from torchlift import Arm
from torchlift.data import Splits, load
from torchlift.lifts import Expand, Standardize
from torchlift.models import GPT, CharLSTM
from torchlift.recipes import Rotated
from torchlift.train.settings import cosine, ramp

VOCABULARY, WINDOWS, HELD_OUT, EPOCHS, TUNING = 50, 4000, 800, 3, 100
MODELS = {
    "transformer": partial(GPT, VOCABULARY, context=128, width=64, depth=2, heads=4),
    "LSTM": partial(CharLSTM, VOCABULARY, width=96, layers=1),
}


def arms(share: float = 1.0) -> dict[str, dict[str, Arm]]:
    """Plain at three rates, exact lifts at one or two; or a share of them."""
    choices: list[tuple[str, Any, tuple[float, ...]]] = [
        ("plain", None, (1.2e-2, 6e-3, 2.4e-2)),
        ("rotated", Rotated(), (1.2e-2, 2.4e-2)),
        ("centered", Standardize(), (1.2e-2,)),
        ("linear lifting, rank 1/8", Expand(rank=0.125), (6e-3,)),
    ]
    adam = partial(AdamW, weight_decay=0.01)
    return {
        name: {f"{name}, lr {lr:g}": Arm(recipe, partial(adam, lr=lr)) for lr in thinned(rates, share)}
        for name, recipe, rates in choices
    }


def warm_cosine(t: float) -> float:
    """½(1 + cos πt) · min(1, 10 t)."""
    return cosine(t) * ramp(t, 0.1)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Rates chosen on a seed outside the table, then all seeds; 3 epochs of 4,000 windows unless given."""
    numbers, length = range(seeds or 1), epochs or EPOCHS
    splits = few(small(load("ptb-char", data)), images)
    share = share_of(length, EPOCHS, len(splits.train[0]), WINDOWS)
    rows: list[Row] = []
    rates: list[Row] = []
    for model in MODELS:
        comparison = tl.compare(
            MODELS[model], splits, recipes=arms(share), seeds=numbers, tuning_seeds=(TUNING,), budget=length,
            schedule=warm_cosine, clip=1.0, batch_size=32, out=out / f"search-text-{model}", resume=True,
            progress=False,
        )  # fmt: skip
        for label, row in zip(comparison.results, table(comparison, "plain"), strict=True):
            tuning = comparison.tuning[label]
            rows.append({"model": model} | row | {"arm": tuning.values["arm"]})
            rates += [{"model": model, "arm": name, "validation": v} for name, v in tuning.candidates.items()]
    return {
        "title": "Tried on text",
        "source": "our own search",
        "finding": "; ".join(finding(rows, model) for model in MODELS),
        "scale": f"{length:g} plain epochs over {len(splits.train[0]):,} windows of 128 characters",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "tuning seed": TUNING,
        "rates": rates,
        "notes": [
            "test and validation are accuracies of the next character; losses are nats per character. For "
            "every recipe the rate that is best on validation data of another seed. Equal FLOPs."
        ],
    }


def small(splits: Splits) -> Splits:
    """The first windows of each part."""

    def first(pair: tuple[Tensor, Tensor], n: int) -> tuple[Tensor, Tensor]:
        return pair[0][:n], pair[1][:n]

    return Splits(
        first(splits.train, WINDOWS), first(splits.valid, HELD_OUT), first(splits.test, HELD_OUT), "text"
    )


def finding(rows: list[Row], model: str) -> str:
    """The best lift by validation, and plain training."""
    plain, *others = (row for row in rows if row["model"] == model)
    first = max(others, key=lambda row: row["validation"]["mean"])
    gap = first["to the first, loss"]
    interval = f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
    return (
        f"{model}: {first['arm']} {first['test loss']['mean']:.3f} nats per character, "
        f"{interval} to {plain['arm']} {plain['test loss']['mean']:.3f}"
    )
