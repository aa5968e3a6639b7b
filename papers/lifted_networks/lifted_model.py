"""Lifted networks, Table 1 as written: block-coordinate descent with the classical penalty, every second."""

import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from papers.common.arms import machine
from papers.common.mnist_mlp import Pair, digits, mlp, spread
from torchlift import lifted
from torchlift.journal import Journal
from torchlift.methods.lifted.data import metric
from torchlift.methods.lifted.network import Network, loss_activation
from torchlift.methods.lifted.solvers.descent import Exact

PAPER: dict[tuple[int, ...], dict[str, tuple[float, float]]] = {
    (300,): {
        "model": (0.898, 0.898),
        "normal": (0.915, 0.800),
        "xavier": (0.923, 0.836),
        "scale": (0.924, 0.844),
        "lifted": (0.962, 0.875),
    },
    (300, 100): {
        "model": (0.875, 0.875),
        "normal": (0.919, 0.792),
        "xavier": (0.932, 0.838),
        "scale": (0.931, 0.842),
        "lifted": (0.969, 0.899),
    },
    (500, 150): {
        "model": (0.865, 0.865),
        "normal": (0.927, 0.824),
        "xavier": (0.936, 0.850),
        "scale": (0.935, 0.858),
        "lifted": (0.970, 0.890),
    },
    (500, 200, 100): {
        "model": (0.853, 0.853),
        "normal": (0.927, 0.821),
        "xavier": (0.939, 0.857),
        "scale": (0.935, 0.848),
        "lifted": (0.958, 0.926),
    },
    (400, 200, 100, 50): {
        "model": (0.770, 0.770),
        "normal": (0.919, 0.751),
        "xavier": (0.938, 0.838),
        "scale": (0.936, 0.815),
        "lifted": (0.919, 0.959),
    },
}
SAME_TIME = "xavier, same time"
INITS = ("normal", "xavier", "scale", "lifted")
FIGURE_1 = ((300,), (500, 200, 100))
RATES = (1e-5, 1e-6)
IMAGES, EPOCHS, BATCH = 60_000, 17, 100
LAMBDAS = (0.01, 0.1, 1.0, 10.0, 100.0)
SWEEPS = 4
RHO = 1e-3  # beside the mean over samples, as networks have it; beside the sum it is next to nothing
PRECISE = 1e-6  # the gradient, per sample, at which a block counts as solved

Cell = tuple[tuple[int, ...], int, str, float | None]
"""Hidden layers, seed, initialization ("model" is the lifted model alone), rate."""
Column = tuple[tuple[int, ...], str, float | None]
"""The same of all seeds."""


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """min −Σ log softmax + λ Σ_l‖X_l − W_l X_{l−1} − b_l‖² + ρ Σ‖W_l‖², X ≥ 0, by its blocks; then Adam.

    λ is chosen on a sixth of the images, held out, on the first seed. Trials are kept in
    ``out/trials.jsonl``: a stopped run goes on, and ``python -m papers.lifted_networks.lifted_model OUT``
    prints the table of what is there.
    """
    train, test = digits(data, images or IMAGES, min(10_000, images or 10_000))
    bench = Bench(Store(out / "trials.jsonl"), train, test, max(1, round(epochs or EPOCHS)))
    cells = order(list(PAPER), seeds or 5)
    trials = [bench.work(cell) for cell in cells]
    return page(trials, sorted({seed for _, seed, _, _ in cells}), bench.store)


def order(nets: Sequence[tuple[int, ...]], seeds: int) -> list[Cell]:
    """The whole table of one seed, then that of the next; last our own control, on the first seed."""

    def cells(net: tuple[int, ...], seed: int, inits: Sequence[str]) -> list[Cell]:
        return [(net, seed, init, rate) for init in inits for rate in ((None,) if init == "model" else RATES)]

    table = [
        cell
        for seed in range(seeds)
        for inits in (("model",), INITS)
        for net in nets
        for cell in cells(net, seed, inits)
    ]
    return table + [cell for net in nets for cell in cells(net, 0, (SAME_TIME,))]


class Store:
    """Results by key, in a journal."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.journal = path, Journal(path)
        self.rows: dict[str, dict[str, Any]] = {row["key"]: row for row in self.journal.read()}

    def add(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Write them down, all or none."""
        keyed = {key: {"key": key} | row for key, row in rows.items()}
        self.journal.append(*keyed.values())
        self.rows |= keyed

    def once(self, key: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row under the key, else the work's result, written down."""
        if key not in self.rows:
            self.add({key: work()})
        return self.rows[key]


@dataclasses.dataclass
class Bench:
    """Works out cells of the table, each once, and before it those it needs."""

    store: Store
    train: Pair
    test: Pair
    epochs: int

    def work(self, cell: Cell) -> dict[str, Any]:
        """The result of a cell."""
        if cell[3] is None:
            return self.model(cell)
        if self.key(cell) not in self.store.rows:
            self.store.add({self.key(one): row for one, row in self.networks(cell).items()})
        return self.store.rows[self.key(cell)]

    def key(self, cell: Cell) -> str:
        """The name of a cell, with what it was measured on."""
        net, seed, init, rate = cell
        name = f"{len(self.train[0])} images {'-'.join(map(str, net))} {seed} {init}"
        return name if rate is None else f"{name} {rate} {self.epochs} epochs"

    def weights(self, net: tuple[int, ...], seed: int) -> Path:
        """Where the lifted model's weights are kept."""
        return self.store.path.with_name(self.key((net, seed, "model", None)).replace(" ", "-") + ".pt")

    def model(self, cell: Cell) -> dict[str, Any]:
        """The lifted model alone."""
        net, seed, _, _ = cell
        lam = self.store.once(f"{self.key((net, 0, 'lambda', None))}", lambda: tune(net, self.train))["lam"]
        return self.store.once(
            self.key(cell),
            lambda: (
                described(cell, self.train, self.test)
                | our_model(net, seed, lam, self.train, self.test, self.weights(net, seed))
            ),
        )

    def networks(self, cell: Cell) -> dict[Cell, dict[str, Any]]:
        """Networks from all of the paper's initializations at this rate; or our control."""
        net, seed, init, rate = cell
        assert rate is not None
        lifting = self.work((net, seed, "model", None))["seconds"]
        steps, inits = self.epochs * math.ceil(len(self.train[0]) / BATCH), INITS
        if init == SAME_TIME:
            plain = self.work((net, seed, "xavier", rate))["seconds"]
            steps, inits = round(steps * (1 + lifting / max(plain, 1e-9))), (SAME_TIME,)
        starts = [start(net, seed, one, self.weights(net, seed)) for one in inits]
        ends = descend_together(starts, seed, rate, self.train, self.test, steps)
        return {
            (net, seed, one, rate): described((net, seed, one, rate), self.train, self.test)
            | end
            | {"lifting": lifting if one == "lifted" else 0.0}
            for one, end in zip(inits, ends, strict=True)
        }


def described(cell: Cell, train: Pair, test: Pair) -> dict[str, Any]:
    """The cell and its scale."""
    net, seed, init, rate = cell
    scale = {"images": len(train[0]), "tested": len(test[0]), "sweeps": SWEEPS}
    return {"net": list(net), "seed": seed, "init": init, "rate": rate, **scale}


@torch.no_grad()
def block_descent(model: nn.Module, lam: float, train: Pair, sweeps: int = SWEEPS, rho: float = RHO) -> None:
    """Exact NNLS and ridge blocks, logistic at the output; λ‖·‖² is twice λ times the penalty ½‖·‖²."""
    x, samples = train[0], len(train[0])
    network = Network.of(model, "classical", 2 * lam, loss_activation("cross_entropy"))
    method = lifted.BCD(update=Exact(tolerance=PRECISE * samples), rho=rho * samples, penalty="classical")
    states, y = network.states(x), network.targets(train[1], x)
    for _ in range(sweeps):
        method.sweep_states(network, x, y, states)
        method.sweep_weights(network, x, y, states)
    network.write_back()


def tune(net: tuple[int, ...], train: Pair) -> dict[str, Any]:
    """λ by accuracy on a sixth of the images, held out, after descent on a tenth."""
    held_out = len(train[0]) // 6
    cut = max(len(train[0]) // 10, 2)
    first, validation = (train[0][:cut], train[1][:cut]), (train[0][-held_out:], train[1][-held_out:])
    start, scores = time.process_time(), dict[float, float]()
    for lam in LAMBDAS:
        model = mlp((784, *net, 10), "xavier", 0)
        block_descent(model, lam, first)
        scores[lam] = metric(model, validation)
    return {
        "lam": max(scores, key=lambda lam: scores[lam]),
        "seconds": time.process_time() - start,
        "scores": scores,
    }


def our_model(
    net: tuple[int, ...], seed: int, lam: float, train: Pair, test: Pair, weights: Path
) -> dict[str, Any]:
    """The lifted model alone, in CPU seconds; on the first seed by the lifted rule too, on 200 images."""
    model = mlp((784, *net, 10), "xavier", seed)
    start = time.process_time()
    block_descent(model, lam, train)
    seconds = time.process_time() - start
    weights.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), weights)
    score = {"score": metric(model, test), "seconds": seconds, "lambda": lam}
    if seed:
        return score
    some, labels = test[0][:200], test[1][:200]
    scores = lifted.predict(model, some, "lifted", mus=lam, loss="cross_entropy")
    return score | {"lifted rule": float((scores.argmax(1) == labels).double().mean())}


def start(net: tuple[int, ...], seed: int, init: str, weights: Path) -> nn.Sequential:
    """A network at its initialization."""
    model = mlp((784, *net, 10), init if init in ("normal", "scale") else "xavier", seed)
    if init == "lifted":
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model


def descend_together(
    models: Sequence[nn.Sequential], seed: int, rate: float, train: Pair, test: Pair, steps: int
) -> list[dict[str, Any]]:
    """Adam on all networks over the same batches; accuracy after every epoch, CPU seconds of each.

    Weights are stacked, and pixels that are 0 in the whole batch are left out of the first product: the steps
    are those of one network after the other, in less time.
    """
    layers = [[one for one in model if isinstance(one, nn.Linear)] for model in models]
    weights = [
        nn.Parameter(torch.stack([one.weight.mT for one in same])) for same in zip(*layers, strict=True)
    ]
    biases = [
        nn.Parameter(torch.stack([one.bias[None] for one in same])) for same in zip(*layers, strict=True)
    ]
    optimizer = torch.optim.Adam([*weights, *biases], lr=rate, fused=True)
    generator = torch.Generator().manual_seed(seed)
    curves, seconds, done = [accuracies(weights, biases, test)], 0.0, 0
    while done < steps:
        clock = time.process_time()
        for index in torch.randperm(len(train[0]), generator=generator).split(BATCH)[: steps - done]:
            optimizer.zero_grad()
            x, y = train[0][index], train[1][index]
            inked = x.amax(0).nonzero()[:, 0]
            out = forward([weights[0][:, inked], *weights[1:]], biases, x[:, inked])
            (cross_entropy(out.flatten(0, 1), y.repeat(len(models)), reduction="sum") / len(y)).backward()
            optimizer.step()
            done += 1
        seconds += time.process_time() - clock
        curves.append(accuracies(weights, biases, test))
    return [
        {"score": curve[-1], "curve": curve, "seconds": seconds / len(models), "steps": steps}
        for curve in map(list, zip(*curves, strict=True))
    ]


def forward(weights: Sequence[Tensor], biases: Sequence[Tensor], x: Tensor) -> Tensor:
    """The outputs of stacked networks: network, sample, class."""
    state = x.expand(len(weights[0]), -1, -1)
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        state = torch.baddbmm(bias, state, weight).relu()
    return torch.baddbmm(biases[-1], state, weights[-1])


@torch.no_grad()
def accuracies(weights: Sequence[Tensor], biases: Sequence[Tensor], data: Pair) -> list[float]:
    """Of every network of a stack."""
    out = torch.cat([forward(weights, biases, x) for x in data[0].split(1000)], 1)
    return (out.argmax(2) == data[1]).double().mean(1).tolist()


def figure(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Test accuracy after every epoch, the mean of all seeds, at the larger rate (Figure 1)."""
    groups: dict[tuple[str, str], list[list[float]]] = {}
    for trial in trials:
        init, net = trial["init"], tuple(trial["net"])
        if init in ("model", SAME_TIME) or net not in FIGURE_1 or trial["rate"] != RATES[0]:
            continue
        groups.setdefault(("-".join(map(str, net)), init), []).append(trial["curve"])
    return [
        {
            "name": f"{net}, {init}",
            "x": list(range(len(curves[0]))),
            "y": [statistics.mean(some) for some in zip(*curves, strict=True)],
        }
        for (net, init), curves in groups.items()
    ]


def page(trials: list[dict[str, Any]], seeds: list[int], store: Store) -> dict[str, Any]:
    """The table: a row for every net, initialization and rate."""
    cells: dict[Column, list[dict[str, Any]]] = {}
    for trial in trials:
        cells.setdefault((tuple(trial["net"]), trial["init"], trial["rate"]), []).append(trial)
    rows = [
        row(net, init, rate, cells[net, init, rate]) for net, init, rate in sorted(cells, key=table_order)
    ]
    one = trials[0]
    tuned = {key.split()[2]: value for key, value in store.rows.items() if key.endswith(" lambda")}
    chosen = "; ".join(
        f"{net}: {t['lam']:g} of {t['scores']} in {t['seconds']:.0f} s" for net, t in tuned.items()
    )
    steps = max(trial.get("steps", 0) for trial in trials if trial["init"] != SAME_TIME)
    return {
        "title": "Lifted networks on MNIST, Table 1 as written",
        "source": "Askari et al., Lifted Neural Networks, Table 1",
        "finding": finding(rows),
        "scale": f"{one['images']} training and {one['tested']} test images, {one['sweeps']} exact sweeps, "
        f"{steps} steps of Adam",
        "seeds": seeds,
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": figure(trials),
        "notes": [
            f"Classical penalty; ρ = {RHO:g} beside the mean over samples; ridge, NNLS and logistic blocks, "
            f"solved to a gradient of {PRECISE:g} per sample.",
            "λ by accuracy on a sixth of the images, held out, after descent on a tenth (paper: Bayesian "
            f"optimization): {chosen}; "
            "these seconds are not in 'lifting'.",
            "Seconds are CPU seconds of one thread; 'lifting' is what block descent took before Adam's "
            f"first step, which the paper does not count. '{SAME_TIME}' takes as many more steps as "
            "that time pays for.",
            "Networks are trained by Adam: the published baselines behave like Adam at these rates.",
        ],
    }


def table_order(cell: Column) -> tuple[int, int, float]:
    """Nets as in the paper, its columns, the larger rate first."""
    net, init, rate = cell
    starts = ("model", *INITS, SAME_TIME)
    return list(PAPER).index(net) if net in PAPER else len(PAPER), starts.index(init), -(rate or 0.0)


def row(net: tuple[int, ...], init: str, rate: float | None, some: list[dict[str, Any]]) -> dict[str, Any]:
    """One cell."""
    score, column = spread([one["score"] for one in some]), 0 if rate is None else RATES.index(rate)
    published = PAPER.get(net, {}).get(init)
    return {
        "hidden": "-".join(map(str, net)),
        "init": init,
        "rate": rate,
        "mean": score["mean"],
        "sd": score["sd"],
        "seeds": len(some),
        "paper": None if published is None else published[column],
        "lifted rule": next((one["lifted rule"] for one in some if "lifted rule" in one), None),
        "seconds": spread([one["seconds"] for one in some])["mean"],
        "lifting": spread([one.get("lifting", 0.0) for one in some])["mean"],
    }


def finding(rows: list[dict[str, Any]]) -> str:
    """The lifted model alone, and where its weights end above Xavier's at equal steps and at equal time."""
    cells = {(r["hidden"], r["rate"], r["init"]): r["mean"] for r in rows}

    def wins(rival: str) -> str:
        both = [
            (cells[net, rate, "lifted"], cells.get((net, rate, rival)))
            for net, rate, i in cells
            if i == "lifted"
        ]
        pairs = [(ours, theirs) for ours, theirs in both if theirs is not None]
        return f"{sum(ours > theirs for ours, theirs in pairs)} of {len(pairs)}"

    alone = ", ".join(
        f"{r['hidden']}: {r['mean']:.3f} (paper {r['paper'] or float('nan'):.3f})"
        for r in rows
        if r["init"] == "model"
    )
    return (
        f"the lifted model alone reaches {alone}; its weights end above Xavier's in {wins('xavier')} cells "
        f"at equal steps, in {wins(SAME_TIME)} at equal CPU time"
    )


def so_far(out: Path) -> dict[str, Any]:
    """The page of a run that was stopped, which says so."""
    store = Store(out / "trials.jsonl")
    trials = [value for value in store.rows.values() if "net" in value]
    whole, cells = (
        page(trials, sorted({trial["seed"] for trial in trials}), store),
        len(order(list(PAPER), 5)),
    )
    partial = f"{len(trials)} of {cells} cells were run; the column 'seeds' counts them"
    return whole | {"partial": partial, "command": "torchlift reproduce lifted-model"}


if __name__ == "__main__":
    print(json.dumps(so_far(Path(sys.argv[1])), indent=1, ensure_ascii=False))
