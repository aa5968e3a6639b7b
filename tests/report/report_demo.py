"""Plausible data for the pages, generated: noisy exponential curves, seeds that differ, sizes that shrink."""

import io
import math

import numpy as np
from PIL import Image as Picture

LAYERS = ("conv1", "conv2", "fc1", "fc2", "head")


def history(
    seed=0, phases=(("base", 10), ("lifted", 10), ("project", 10)), final=0.12, best=0.97, per_epoch=4
):
    """Rows as ``history.jsonl`` holds them; each fit starts a little above where the one before ended."""
    noise = np.random.default_rng(seed)
    rows, cost, step, level = [], 0.0, 0, 2.3
    for fit, (phase, epochs) in enumerate(phases):
        price = 1.6 if phase == "lifted" else 1.0
        floor = final * (1 + 0.8 / (fit + 1))
        for tick in range(1, epochs * per_epoch + 1):
            epoch = tick / per_epoch
            loss = floor + (level - floor) * math.exp(-2.2 * epoch / epochs * (1.5 if fit else 2.5))
            loss *= 1 + 0.04 * noise.standard_normal()
            cost, step = cost + price / per_epoch, step + 118
            evaluated = tick % 2 == 0
            row = {"fit": fit, "phase": phase, "epoch": epoch, "step": step, "train_loss": loss, "cost": cost}
            row["valid_loss"] = loss * 1.12 + 0.03 + 0.01 * noise.standard_normal() if evaluated else None
            row["metric"] = best - 0.36 * loss / 2.3 + 0.003 * noise.standard_normal() if evaluated else None
            row |= {"seconds": 0.93 * cost, "lr": 0.05 * (1 + math.cos(math.pi * epoch / (epochs + 1))) / 2}
            if phase == "lifted":
                row |= {"penalty": 0.4 * math.exp(-epoch / 4), "gap": 0.8 * math.exp(-epoch / 3) + 0.002}
            if phase != "base":
                row["sparsity"] = 0.9 * (1 - math.exp(-((fit - 1) * epochs + epoch) / 5))
            rows.append(row)
        level = rows[-1]["train_loss"] * 3 + 0.2
    return rows


def summary():
    before = {
        "params": 70_346,
        "nonzero": 70_346,
        "bits": 70_346 * 32,
        "file_bytes": 283_104,
        "bound_bytes": 281_384,
        "macs": 1_213_184,
        "latency_ms": 3.21,
    }
    after = {
        "params": 70_346,
        "nonzero": 7_105,
        "bits": 70_346 * 32,
        "file_bytes": 37_930,
        "bound_bytes": 37_402,
        "macs": 412_332,
        "latency_ms": 1.84,
    }
    lifts = [
        {
            "phase": "lifted",
            "what": "SoftMask",
            "where": "*weight",
            "added_parameters": 69_994,
            "projected": "threshold",
        },
        {
            "phase": "lifted",
            "what": "Lifter(kind='mlp')",
            "where": "features.2",
            "added_parameters": 8_320,
            "projected": "distil",
        },
        {
            "phase": "project",
            "what": "KeepGrid",
            "where": "*weight",
            "added_parameters": 0,
            "projected": "fold",
        },
    ]
    settings = {
        "optimizer": {"name": "SGD", "lr": 0.05, "momentum": 0.9},
        "schedule": "cosine",
        "batch_size": 128,
    }
    return {
        "title": "LeNet-5 on digits, sparse",
        "recipe": "ContinuousSparsification",
        "settings": settings | {"beta_final": 200.0, "strength": 1e-8, "where": "*weight"},
        "metric": "accuracy",
        "seed": 0,
        "cost": {"epochs": 36.0, "flops": 2.41e12, "seconds": 33.6},
        "results": {"valid": 0.9611, "test": 0.9583},
        "before": before,
        "after": after,
        "lifts": lifts,
        "notes": ["The mask closed **90 %** of the gates; the gap at the end was `0.002`."],
    }


def comparison(seeds=5):
    """Four recipes on the same seeds: one clearly better, one not to be told from plain, one worse."""
    kinds = {
        "plain": (0.955, 70_346, 283_104, (("plain", 30),)),
        "neural lifting": (0.958, 70_346, 283_104, (("base", 10), ("lifted", 8), ("project", 7))),
        "soft mask": (0.966, 70_346, 37_930, (("lifted", 14), ("keep", 8))),
        "magnitude pruning": (0.941, 70_346, 38_112, (("plain", 20), ("keep", 10))),
    }
    luck = np.random.default_rng(7).normal(0, 0.004, seeds)
    recipes = {}
    for index, (name, (level, params, size, phases)) in enumerate(kinds.items()):
        noise = np.random.default_rng(100 + index)
        test = level + luck + noise.normal(0, 0.002, seeds)
        rows = [
            history(17 * index + seed, phases, 0.1 + index / 50, value + 0.01)
            for seed, value in enumerate(test)
        ]
        recipes[name] = {
            "test": test.tolist(),
            "valid": (test + noise.normal(0.003, 0.001, seeds)).tolist(),
            "cost": [run[-1]["cost"] for run in rows],
            "seconds": [run[-1]["seconds"] * noise.uniform(0.95, 1.1) for run in rows],
            "params": params,
            "bytes": size,
            "latency_ms": float(noise.uniform(1.7, 3.3)),
            "history": rows,
            "settings": {"optimizer": "SGD", "lr": 0.05, "epochs": sum(epochs for _, epochs in phases)},
            "notes": ["All gates closed on one layer."] if name == "soft mask" else [],
        }
    paired = {
        name: paired_difference(recipes[name]["test"], recipes["plain"]["test"]) for name in list(kinds)[1:]
    }
    head = {
        "title": "LeNet-5 on digits: what pays off at equal cost",
        "metric": "accuracy",
        "higher_is_better": True,
    }
    return head | {
        "budget": 30,
        "unit": "plain epochs",
        "seeds": list(range(seeds)),
        "recipes": recipes,
        "plain": "plain",
        "paired": paired,
    }


def paired_difference(ours, theirs):
    difference = np.array(ours) - np.array(theirs)
    half = 2.776 * difference.std(ddof=1) / math.sqrt(len(difference))
    mean = float(difference.mean())
    return {"mean": mean, "low": mean - half, "high": mean + half, "wins": int((difference > 0).sum())}


def reproduction():
    noise = np.random.default_rng(3)
    x = list(range(0, 201, 5))

    def curve(name, floor, rate):
        y = floor + (1 - floor) * np.exp(-np.array(x) / rate) + noise.normal(0, 0.006, len(x))
        band = 0.02 + 0.05 * np.exp(-np.array(x) / 60)
        return {"name": name, "x": x, "y": y.tolist(), "band": [(y - band).tolist(), (y + band).tolist()]}

    return {
        "title": "Neural lifting of a one-block net",
        "source": "Teacher–student regression, mean squared error after the last phase",
        "scale": "15 data sets, 200 epochs",
        "seeds": [0, 1, 2],
        "machine": {"cores": 2, "torch": "2.13"},
        "columns": ["method", "paper", "here", "ratio to plain"],
        "rows": [
            ["one block, paper's rate", 0.0241, {"mean": 0.0252, "sd": 0.0018}, 1.0],
            ["lifted", 0.0173, {"mean": 0.0178, "sd": 0.0021}, 0.706],
            {
                "method": "one block, tuned rate",
                "here": {"mean": 0.0151, "sd": 0.0012},
                "ratio to plain": 0.599,
            },
        ],
        "curves": [
            curve("one block", 0.2, 50),
            curve("lifted", 0.11, 40),
            curve("one block, tuned", 0.09, 30),
        ],
        "x_label": "epoch",
        "y_label": "validation loss",
        "notes": ["Each curve is the mean over 15 data sets.", "The band is one standard deviation."],
        "finding": "The lifted net beats the paper's baseline (ratio **0.71**), not one with a tuned rate.",
    }


def png(size=48, seed=0, noise=0.0):
    """A smooth test picture with added noise, as the bytes of a PNG."""
    u, v = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size))
    clean = 0.5 + 0.4 * np.sin(9 * u) * np.cos(7 * v)
    dirty = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    buffer = io.BytesIO()
    Picture.fromarray((255 * dirty.clip(0, 1)).astype(np.uint8)).save(buffer, "png")
    return buffer.getvalue()


def gallery():
    """A page with every kind of block."""
    from torchlift import report as r

    noise = np.random.default_rng(1)
    rates, epsilons = [f"1e−{k}" for k in range(1, 5)], [f"1e−{k}" for k in range(8, 1, -1)]
    grid = [[0.9 - 0.04 * (i - 1.5) ** 2 - 0.01 * (j - 3) ** 2 for j in range(7)] for i in range(4)]
    grid[3][6] = math.nan
    bars = {"soft mask": [0.42, 0.78, 0.95, 0.91, 0.55], "magnitude": [0.61, 0.7, 0.93, 0.82, 0.34]}
    cost = noise.uniform(8, 40, 12)
    points = [
        r.Points("plain", cost[:6].tolist(), (0.9 + cost[:6] / 900).tolist(), y_error=[0.006] * 6),
        r.Points("lifted", cost[6:].tolist(), (0.915 + cost[6:] / 900).tolist(), y_error=[0.004] * 6),
    ]
    walk = np.cumsum(noise.standard_normal((3, 5000)), axis=1)
    lines = [r.Line(f"walk {k}", np.arange(5000.0).tolist(), row.tolist()) for k, row in enumerate(walk)]
    figures = [
        r.Heatmap(
            epsilons[:4],
            [*rates, "5e−1", "5e−2", "5e−3"],
            grid,
            "eps",
            "learning rate",
            "Accuracy by lr × eps",
            best="high",
        ),
        r.Bars(LAYERS, bars, "percent", "Sparsity by layer"),
        r.Scatter(points, "Accuracy against cost", "cost (plain epochs)", "accuracy"),
        r.Chart(lines, "Five thousand points", "step", "height"),
    ]
    pictures = [r.Image(png(noise=n, seed=k), f"noise {n}") for k, n in enumerate((0.0, 0.1, 0.25, 0.5))]
    return r.Page(
        "Every kind of block",
        "What a page can be made of",
        [
            r.Section(
                "Words",
                [
                    r.Paragraphs("A paragraph with `code`, **strong** and *emphasis*.\n\n- one\n- two"),
                    r.Note("Beware.", "warning", "Careful"),
                    r.Note("Just so."),
                ],
            ),
            r.Section("Figures", figures),
            r.Section("Pictures", [r.Images(pictures, "Denoising", "From clean to noisy.")]),
        ],
    )
