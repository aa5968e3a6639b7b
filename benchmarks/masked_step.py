"""What a soft mask adds to a training step: masked over dense, interleaved, medians.

python benchmarks/masked_step.py --out benchmarks/results/masked_step.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from torchlift.core import Problem, Task, anneal
from torchlift.lifts import SoftMask
from torchlift.models import LeNet5, resnet
from torchlift.train import Settings

Step = Callable[[], None]


def stepper(problem: Problem, batch: tuple[Tensor, Tensor]) -> Step:
    """One step as the library's loop takes it: anneal, objective, gradients, fused SGD with momentum."""
    settings = Settings(optimizer=lambda p, **k: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True, **k))
    optimizer = settings.make_optimizer(problem)

    def step() -> None:
        anneal(problem, 0.5)
        optimizer.zero_grad()
        problem(batch).backward()
        optimizer.step()

    return step


def interleaved(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Process time of each step, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 3):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if number >= 3:
                times[name].append(time.process_time() - start)
    return times


def to_dense(steps: dict[str, Step], rounds: int) -> dict[str, object]:
    """Each step's time over that of the dense one: of medians, and the quartiles of paired ratios."""
    times = interleaved(steps, rounds)
    dense = times["dense"]
    rows: dict[str, object] = {"dense_ms": 1e3 * statistics.median(dense)}
    for name in list(steps)[1:]:
        ratios = sorted(a / b for a, b in zip(times[name], dense, strict=True))
        quarter = len(ratios) // 4
        rows[name] = {
            "ratio": round(statistics.median(times[name]) / statistics.median(dense), 4),
            "paired_quartiles": [round(ratios[quarter], 4), round(ratios[-1 - quarter], 4)],
        }
    return rows


def measure(model: nn.Module, batch: int, rounds: int, masks: dict[str, SoftMask]) -> dict[str, object]:
    """Ratios of masked to dense steps: the median over rounds of paired ratios, and the quartiles."""
    torch.manual_seed(0)
    data = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    task = Task(model)
    steps = {"dense": stepper(task, data)}
    steps |= {name: stepper(mask.lift(task), data) for name, mask in masks.items()}
    return to_dense(steps, rounds)


def write(result: Mapping[str, object], out: Path | None) -> None:
    """Print a result, and keep it."""
    text = json.dumps(result, indent=1)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(1)
    masks = {"soft mask": SoftMask(), "with a target": SoftMask(sparsity=0.9, rescale=True)}
    result = {
        "what": "process time of a masked training step over a dense one",
        "batch": args.batch, "rounds": args.rounds, "threads": 1, "torch": torch.__version__,
        "LeNet-5": measure(LeNet5(), args.batch, args.rounds, masks),
        "ResNet-20": measure(resnet(20), args.batch, max(5, args.rounds // 4), masks),
    }  # fmt: skip
    write(result, args.out)


if __name__ == "__main__":
    main()
