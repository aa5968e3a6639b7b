"""What random crops and flips cost beside a training step of LeNet-5 (batch 128, one thread).

    python benchmarks/augment.py

Interleaved, medians; writes benchmarks/results/augment.json.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from torchlift.data import crop_flip
from torchlift.models import LeNet5

REPEATS = 100


def seconds(function: Callable[[], object]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, generator = LeNet5(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    pixels = torch.randint(0, 256, x.shape, dtype=torch.uint8)

    def step() -> None:
        cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    work = {
        "step": step,
        "float32": lambda: crop_flip(x, generator),
        "uint8": lambda: crop_flip(pixels, generator),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(REPEATS):
        for name, function in work.items():
            times[name].append(seconds(function))
    milliseconds = {name: 1000 * statistics.median(values[5:]) for name, values in times.items()}
    least = {name: 1000 * min(values) for name, values in times.items()}
    ratios = {name: milliseconds[name] / milliseconds["step"] for name in ("float32", "uint8")}
    result = {
        "what": "crop_flip at batch 128, 3x32x32, beside one LeNet-5 training step",
        "median_ms": milliseconds,
        "least_ms": least,
        "share_of_a_step": ratios,
        "share_of_the_least_step": {name: least[name] / least["step"] for name in ratios},
        "repeats": REPEATS,
        "seed": 0,
        "threads": 1,
        "torch": torch.__version__,
    }
    print(json.dumps(result, indent=2))
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "augment.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
