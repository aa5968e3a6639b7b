"""The price of our loop: its time per step against a hand-written PyTorch loop's, interleaved, one thread.

    python benchmarks/loop_overhead.py [--rounds 15]

Both loops take the same steps on the same data with the same fused optimizer; the hand-written one does
nothing else. Each round times both, in alternating order; the ratio is the median over rounds.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from torchlift.core import Task
from torchlift.models import LeNet5
from torchlift.train import DurableFit, Run, Settings, engine, source

BATCH = 128
OPTIMIZER = functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9, fused=True)
Data = tuple[Tensor, Tensor]


def by_hand(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], data: Data, epochs: int) -> None:
    """What one would write without a library."""
    x, y = data
    optimizer = OPTIMIZER(model.parameters())
    model.train()
    for _ in range(epochs):
        total = 0.0
        for index in torch.randperm(len(x)).split(BATCH):
            value = loss(model(x.index_select(0, index)), y.index_select(0, index))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item()


def by_us(model: nn.Module, loss: str, data: Data, epochs: int) -> float:
    """Our loop; the seconds inside it, set-up and the FLOP count of the first step left out."""
    run = Run(source(data, BATCH), None, engine("cpu"), Settings(optimizer=OPTIMIZER), epochs=epochs)
    fit = DurableFit(run)
    fit(Task(model, loss))
    return fit.account.total()[1]


def seconds(function: Callable[[], object]) -> float:
    """Wall time of a call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def ratio(
    name: str, make: Callable[[], nn.Module], loss: str, data: Data, epochs: int, rounds: int
) -> dict[str, float]:
    """Interleaved rounds of both loops."""
    criterion = nn.functional.cross_entropy if loss == "cross_entropy" else nn.functional.mse_loss
    steps = epochs * -(-len(data[0]) // BATCH)
    hand, ours = list[float](), list[float]()
    for number in range(rounds + 1):  # the first round warms up
        first = [lambda: hand.append(seconds(lambda: by_hand(make(), criterion, data, epochs)))]
        both = [*first, lambda: ours.append(by_us(make(), loss, data, epochs))]
        for call in both if number % 2 else reversed(both):
            call()
    ratios = [b / a for a, b in zip(hand[1:], ours[1:], strict=True)]
    row = {
        "hand_us": 1e6 * statistics.median(hand[1:]) / steps,
        "ours_us": 1e6 * statistics.median(ours[1:]) / steps,
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
    }
    shown = f"{row['hand_us']:9.0f} µs by hand {row['ours_us']:9.0f} µs ours"
    print(f"{name:<10}{shown}   ratio {row['ratio']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]", flush=True)
    return row


def mlp() -> nn.Module:
    """A network so small that the loop's own cost shows."""
    return nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1))


def main() -> None:
    """Both cases, printed and written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "loop_overhead.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = (torch.randn(128 * 100, 5), torch.randn(128 * 100, 1))
    images = (torch.randn(128 * 8, 3, 32, 32), torch.arange(128 * 8) % 10)
    rows = {
        "mlp 5-64-1": ratio("mlp", mlp, "mse", small, 5, options.rounds),
        "lenet5": ratio("lenet5", LeNet5, "cross_entropy", images, 2, options.rounds),
    }
    machine = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "threads": 1,
        "rounds": options.rounds,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine, "batch": BATCH, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
