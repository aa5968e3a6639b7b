"""What learned precision, and the mean of the steps, add to a training step: over dense, interleaved.

python benchmarks/precision_step.py --out benchmarks/results/precision_step.json
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from masked_step import Step, to_dense, write
from torchlift.core import Problem, Task, constrained
from torchlift.lifts import Average, KeepGrid, Precision
from torchlift.methods.precision.keep_grid import finalize
from torchlift.models import MLP, LeNet5, resnet
from torchlift.train import Settings


def stepper(problem: Problem, batch: tuple[Tensor, Tensor]) -> Step:
    """One step as the library's loop takes it: objective, gradients, SGD (and Adam for s), constraints."""
    settings = Settings(optimizer=partial(torch.optim.SGD, lr=1e-3, momentum=0.9))
    optimizer, nodes = settings.make_optimizer(problem.train()), constrained(problem)

    def step() -> None:
        problem(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for node in nodes:
                node.constrain()

    return step


def measure(
    model: nn.Module, batch: int, rounds: int, shape: tuple[int, ...] = (3, 32, 32)
) -> dict[str, object]:
    """Ratios to dense steps: of medians, and the quartiles of paired ratios."""
    torch.manual_seed(0)
    data = torch.randn(batch, *shape), torch.randint(10, (batch,))
    task, lift = Task(model), Precision()
    problems = {
        "precision": lift.lift(task),
        "precision per channel": Precision(granularity="channel").lift(task),
    }
    problems["on the grid"] = KeepGrid().lift(lift.project(problems["precision"]))
    problems["on a moving grid"] = finalize(problems["precision"], lift, moving=True)
    if not any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()):
        problems["average"] = Average().lift(task)
    steps = {"dense": stepper(task, data)} | {name: stepper(p, data) for name, p in problems.items()}
    return to_dense(steps, rounds)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "what": "process time of a training step with learned precision over a dense one",
        "batch": args.batch, "rounds": args.rounds, "threads": 1, "torch": torch.__version__,
        "MLP 64-100-50-10": measure(MLP(64, 100, 50, 10), args.batch, 5 * args.rounds, (64,)),
        "MLP 784-300-100-10": measure(MLP(784, 300, 100, 10), args.batch, 2 * args.rounds, (784,)),
        "LeNet-5": measure(LeNet5(), args.batch, args.rounds),
        "ResNet-20": measure(resnet(20), args.batch, max(5, args.rounds // 6)),
    }  # fmt: skip
    write(result, args.out)


if __name__ == "__main__":
    main()
