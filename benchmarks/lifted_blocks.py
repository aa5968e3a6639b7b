"""Bregman block-coordinate descent with exact blocks: the seconds of a sweep, the gradient of every block.

python benchmarks/lifted_blocks.py --data DATA --out benchmarks/results/lifted_blocks.json

MNIST digits as rows in float64, 784-300-10 ReLU network with Xavier weights, cross-entropy, mu = 1 and
rho = 1e-3 (the defaults of method "bcd"), one thread. Every block's gradient is worked out again after its
step, from plain sums over all samples; that of the states is μ|x − σ(v − ∇g(x)/μ)|, 0 at the minimizer alone.
"""

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.data.images import mnist
from torchlift.methods.lifted.bcd import BCD
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.shard import Alone
from torchlift.methods.lifted.solvers import Exact, StoppedShortWarning, WeightBlock
from torchlift.methods.lifted.solvers.states import StateBlock
from torchlift.methods.lifted.sweeps import state_step


def digits(data: str | None, samples: int) -> tuple[Tensor, Tensor]:
    """The first training digits as rows in [0, 1]."""
    (x, y), _ = mnist(data)
    return x[:samples].flatten(1).double() / 255, y[:samples]


def network_of(units: int, seed: int) -> Network:
    """A ReLU network with Xavier weights and biases 0.1."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, units), nn.ReLU(), nn.Linear(units, 10)).double()
    for layer in [m for m in model if isinstance(m, nn.Linear)]:
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.constant_(layer.bias, 0.1)
    return Network.of(model, "bregman", 1.0, "cross_entropy")


def timed(row: dict[str, Any], name: str, work: Any) -> Any:
    """Do it, and note wall and processor seconds."""
    start, busy = time.perf_counter(), time.process_time()
    result = work()
    row[f"{name}_seconds"] = time.perf_counter() - start
    row[f"{name}_cpu_seconds"] = time.process_time() - busy
    return result


def sweep(network: Network, x: Tensor, y: Tensor, states: list[Tensor]) -> dict[str, Any]:
    """States, then all weights, each to the end; every block's gradient after its own step."""
    row: dict[str, Any] = {}
    rule, rho = Exact(), BCD().rho
    states[0] = timed(row, "states", lambda: state_step(network, 0, x, y, states, rule))
    v, above = network.preactivation(0, x, states), network.above(0, states, y)
    block = StateBlock(network.penalties[0], network.mus[0], v, above)
    natural = states[0] - network.penalties[0].activation(v - block.slope(states[0]) / network.mus[0])
    row["states_gradient"] = network.mus[0] * float(natural.abs().max())
    for i, (below, target) in enumerate(((x, states[0]), (states[0], y))):
        layer, penalty, mu = network.layers[i], network.penalties[i], network.mus[i]
        name = f"weights_{i + 1}"
        step = BCD(update=rule).weight_step
        layer.theta = timed(row, name, partial(step, layer, penalty, mu, below, target, Alone()))
        weights = WeightBlock(below, target, penalty, mu, rho)
        row[f"{name}_gradient"] = float(weights.gradient(layer.theta).abs().max())
    terms = network.layer_energies(x, states, y)
    row["penalty"], row["loss"] = (float(term) / len(x) for term in terms)
    row["seconds"] = sum(row[f"{n}_seconds"] for n in ("states", "weights_1", "weights_2"))
    row["cpu_seconds"] = sum(row[f"{n}_cpu_seconds"] for n in ("states", "weights_1", "weights_2"))
    return row


def main() -> None:
    """Print and write all sweeps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--units", type=int, default=300)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_blocks.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    x, labels = digits(arguments.data, arguments.samples)
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        with torch.no_grad():
            network = network_of(arguments.units, seed)
            y, states = network.targets(labels, x), network.states(x)
            for number in range(arguments.sweeps):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", StoppedShortWarning)
                    row = {"seed": seed, "sweep": number + 1, **sweep(network, x, y, states)}
                row["stopped_short"] = [str(w.message) for w in caught]
                rows.append(row)
                print(row, flush=True)
    record = {
        "title": "A sweep of Bregman block-coordinate descent with exact blocks",
        "scale": f"{arguments.samples} MNIST digits, {arguments.units} ReLU units, float64, one thread",
        "seeds": list(range(arguments.seeds)),
        "command": f"python benchmarks/lifted_blocks.py --samples {arguments.samples} "
        f"--units {arguments.units} --sweeps {arguments.sweeps} --seeds {arguments.seeds}",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
