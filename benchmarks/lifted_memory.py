"""Memory against depth: peak resident memory of one epoch or sweep, less that of the data alone.

python benchmarks/lifted_memory.py --out benchmarks/results/lifted_memory.json

Each case runs in a process of its own. ``bcd`` stores every state, ``bcd, chunks`` recomputes them 500
samples at a time, ``isgm`` keeps one batch of 200, ``backprop`` one batch of 200 with its graph.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlift import lifted

CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "bcd": {"method": "bcd", "update": "linearized"},
    "bcd, chunks": {"method": "bcd", "update": "linearized", "chunk": 500},
    "isgm": {"method": "isgm", "rounds": 1},
    "backprop": {},
}


def work(case: str, depth: int, samples: int, width: int) -> float:
    """Peak memory in MB."""
    torch.manual_seed(0)
    x, y = torch.randn(samples, width), torch.arange(samples) % 10
    hidden = [module for _ in range(depth) for module in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(width, 10))
    if case == "backprop":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for rows in torch.arange(samples).split(200):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    elif case != "none":
        lifted.train(model, (x, y), epochs=1, progress=False, **CASES[case])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """All cases and depths, each in its own process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depths", type=int, nargs="*", default=[5, 10, 20])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_memory.json"))
    arguments = parser.parse_args()
    if arguments.case:
        print(work(arguments.case, arguments.depths[0], arguments.samples, arguments.width))
        return
    rows: list[dict[str, Any]] = []
    for depth in arguments.depths:
        sizes = ["--depths", str(depth), "--samples", str(arguments.samples), "--width", str(arguments.width)]
        peaks = {
            case: float(
                subprocess.check_output([sys.executable, __file__, "--case", case, *sizes], text=True)
            )
            for case in CASES
        }
        rows.append(
            {"depth": depth, **{f"{c} MB": p - peaks["none"] for c, p in peaks.items() if c != "none"}}
        )
        print(rows[-1], flush=True)
        record = {
            "title": "Memory of lifted training against depth",
            "scale": f"{arguments.samples} samples, width {arguments.width}, one sweep or epoch, "
            "MB beyond the data",
            "seeds": [0],
            "command": "python benchmarks/lifted_memory.py "
            f"--samples {arguments.samples} --width {arguments.width}",
            "torch": torch.__version__,
            "cores": os.cpu_count(),
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
