"""What a step of a lifted problem costs beside a plain one: FLOPs and time (batch 128, one thread).

    python benchmarks/lift_cost.py

Times are CPU time, interleaved; medians, and minima for machines busy with other things (see ``load``).
Writes benchmarks/results/lift_cost.json.
"""

import json
import os
import statistics
import time
from pathlib import Path

import torch

from torchlift.core import Lift, Problem, Task, chain
from torchlift.lifts import Expand, Lifter, Normalize, Rotate, Standardize
from torchlift.models import BlockNet, LeNet5
from torchlift.train.cost import probe

REPEATS = 60
Batch = tuple[torch.Tensor, torch.Tensor]


def seconds(problem: Problem, batch: Batch) -> float:
    """CPU time of one forward and backward pass."""
    start = time.process_time()
    problem(batch).backward()
    problem.zero_grad()
    return time.process_time() - start


def ratios(task: Task, lifts: dict[str, Lift], batch: Batch) -> dict[str, dict[str, float]]:
    """FLOPs and time over those of the plain problem."""
    problems: dict[str, Problem] = {"plain": task} | {name: lift.lift(task) for name, lift in lifts.items()}
    times: dict[str, list[float]] = {name: [] for name in problems}
    for _ in range(REPEATS):
        for name, problem in problems.items():
            times[name].append(seconds(problem, batch))
    medians = {name: statistics.median(repeats) for name, repeats in times.items()}
    best = {name: min(repeats) for name, repeats in times.items()}
    flops = {name: probe(problem, batch).flops for name, problem in problems.items()}
    return {
        name: {
            "flops": flops[name] / flops["plain"],
            "time, median": medians[name] / medians["plain"],
            "time, best": best[name] / best["plain"],
        }
        for name in problems
    }


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))
    points = torch.rand(128, 5), torch.rand(128, 1)
    shared: dict[str, Lift] = {"expand": Expand(), "expand, rank 1/8": Expand(rank=0.125)}
    lenet: dict[str, Lift] = {
        "standardize": Standardize(x=images[0]),
        "normalize": Normalize("trunk*"),
        "mlp lifter, 1000 wide": Lifter("trunk", width=1000),
        "conv lifter, 32 wide": Lifter("trunk.conv2", kind="conv", width=32),
    }
    block: dict[str, Lift] = {
        "standardize": Standardize(x=points[0]),
        "standardize, whitened": Standardize(x=points[0], scaled="whitened"),
        "rotate": Rotate(batches=(points,)),
        "standardize + rotate": chain(Standardize(x=points[0]), Rotate(batches=(points,))),
        "block lifter": Lifter("trunk", kind="block"),
    }
    result = {
        "LeNet-5": ratios(Task(LeNet5()), shared | lenet, images),
        "one residual block": ratios(Task(BlockNet(1), "mse"), shared | block, points),
        "batch": 128,
        "repeats": REPEATS,
        "threads": 1,
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    text = json.dumps(result, indent=1)
    print(text)
    (Path(__file__).parent / "results" / "lift_cost.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
