"""What a step of AvaGrad costs beside torch's Adam, one thread.

    python benchmarks/optim_step.py

CPU time of interleaved rounds: every round steps each optimizer in turn, ratios are taken within a round, and
medians are reported. Writes benchmarks/results/optim_step.json.

Adam's foreach path makes temporaries as large as the model. With the C library's defaults the large ones go
back to the system and are fetched anew at every step, which is part of what is measured ("page_faults"). To
keep them, set MALLOC_MMAP_THRESHOLD_=1000000000 and MALLOC_TRIM_THRESHOLD_=4000000000.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.optim import Adam, Optimizer

from torchlift.models import resnet
from torchlift.optim import AdamEps, AvaGrad, DelayedAdam

Make = Callable[[list[torch.Tensor]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "Adam, foreach": partial(Adam, foreach=True),
    "AvaGrad": AvaGrad,
    "AvaGrad, skip_dead=False": partial(AvaGrad, skip_dead=False),
    "AvaGrad, thesis rule": partial(AvaGrad, rule="thesis"),
    "AvaGrad, coupled decay": partial(AvaGrad, weight_decay=1e-4),
    "AvaGradW": partial(AvaGrad, weight_decay=1e-4, decoupled=True),
    "Delayed Adam": DelayedAdam,
    "Adam, growing epsilon": AdamEps,
    "Adam, fused": partial(Adam, fused=True),
}
LARGE = [(1024, 9216)] * 2 + [(2048, 2048)] * 4 + [(512, 2048)]


def weights(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """Random weights with random gradients."""
    tensors = [0.1 * torch.randn(shape) for shape in shapes]
    for weight in tensors:
        weight.grad = 0.01 * torch.randn_like(weight)
    return tensors


def seconds(optimizer: Optimizer, steps: int) -> float:
    """CPU time of one step, the mean over ``steps``."""
    start = time.process_time()
    for _ in range(steps):
        optimizer.step()
    return (time.process_time() - start) / steps


def faults(optimizer: Optimizer) -> int:
    """Pages fetched from the system in one step."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def measure(shapes: list[tuple[int, ...]], rounds: int, steps: int) -> dict[str, object]:
    """Median microseconds of a step, and median ratios to torch's two Adams within a round."""
    optimizers = {name: make(weights(shapes)) for name, make in OPTIMIZERS.items()}
    for optimizer in optimizers.values():
        seconds(optimizer, 3)
    table = [
        {name: seconds(optimizer, steps) for name, optimizer in optimizers.items()} for _ in range(rounds)
    ]

    def ratio(name: str, to: str) -> float:
        return round(statistics.median(row[name] / row[to] for row in table), 3)

    return {
        "tensors": len(shapes),
        "entries": sum(torch.Size(shape).numel() for shape in shapes),
        "rounds": rounds,
        "steps_per_round": steps,
        "microseconds": {n: round(1e6 * statistics.median(row[n] for row in table), 1) for n in OPTIMIZERS},
        "page_faults": {name: faults(optimizer) for name, optimizer in optimizers.items()},
        "ratio_to_foreach_adam": {name: ratio(name, "Adam, foreach") for name in OPTIMIZERS},
        "ratio_to_fused_adam": {name: ratio(name, "Adam, fused") for name in OPTIMIZERS},
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default="optim_step", help="name of the result")
    name = parser.parse_args().name
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = [tuple(weight.shape) for weight in resnet(20).parameters()]
    result = {
        "what": "CPU time of one optimizer step, one thread",
        "resnet20": measure(small, rounds=60, steps=10),
        "large": measure(LARGE, rounds=15, steps=1),
        "seed": 0,
        "threads": 1,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    print(json.dumps(result, indent=1))
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
