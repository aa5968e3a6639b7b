"""The first W-step of 300 units on 60,000 samples of 784 pixels: exact, sketched, sketched and refined.

    python benchmarks/lifted_sketch.py [--data FOLDER]

CPU seconds of one thread, the best of three; the excess is that of the whole objective over its minimum.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlift.data.images import mnist
from torchlift.methods.lifted.solvers import ridge, sketched_ridge

UNITS, RHO = 300, 60.0


def timed(work: Callable[[], tuple[Tensor, Tensor]], repeats: int = 3) -> tuple[float, tuple[Tensor, Tensor]]:
    """The least CPU seconds, and a result."""
    seconds: list[float] = []
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def main() -> None:
    """Write ``benchmarks/results/lifted_sketch.json``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--samples", type=int, default=60_000)
    out = Path(__file__).parent / "results" / "lifted_sketch.json"
    parser.add_argument("--out", type=Path, default=out)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    x = mnist(chosen.data)[0][0][: chosen.samples].flatten(1).float() / 255
    generator = torch.Generator().manual_seed(0)
    hidden = (x @ torch.randn(784, UNITS, generator=generator) / 28 + 0.1).clamp(
        min=0
    )  # states of a forward pass

    def objective(weight: Tensor, bias: Tensor) -> float:
        return float((torch.addmm(bias, x, weight.mT) - hidden).double().square().sum()) + RHO * float(
            weight.double().square().sum()
        )

    seconds, exact = timed(lambda: ridge(x, hidden, 1.0, RHO))
    least = objective(*exact)
    rows: list[dict[str, Any]] = [{"rows": len(x), "refine": None, "CPU seconds": seconds, "excess": 0.0}]
    for count, refine in ((1_600, 0), (3_200, 0), (6_400, 0), (12_800, 0), (3_200, 1), (3_200, 3)):
        seconds, near = timed(
            lambda count=count, refine=refine: sketched_ridge(
                x, hidden, 1.0, RHO, count, refine=refine, generator=generator
            )
        )
        excess = objective(*near) / least - 1
        rows.append({"rows": count, "refine": refine, "CPU seconds": seconds, "excess": excess})
        print(rows[-1], flush=True)
    for row in rows:
        row["speed-up"] = rows[0]["CPU seconds"] / row["CPU seconds"]
    page = {
        "title": "The W-step from a sketch of the samples",
        "scale": f"{len(x)} digits, 784 inputs, {UNITS} units, one thread, best of three, one seed",
        "columns": list(rows[0]),
        "rows": rows,
    }
    chosen.out.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
