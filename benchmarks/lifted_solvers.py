"""Block solvers beside what they replace, interleaved: NNLS against SciPy, ridge against one Cholesky solve.

python benchmarks/lifted_solvers.py --out benchmarks/results/lifted_solvers.json

The SciPy loop is timed on a sample of the rows and scaled up; every round times all contestants in turn and
medians are reported. Accuracy is the largest difference from SciPy's answers on the sampled rows.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls as scipy_nnls
from torch import Tensor

from torchlift.methods.lifted import solvers


def clock(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, processor seconds and the result."""
    start, busy = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - start, time.process_time() - busy, result


def scipy_rows(weight: Tensor, bias: Tensor, u_next: Tensor, v: Tensor, mu: float) -> np.ndarray:
    """min ‖u₊ − Wx − b‖² + μ‖x − v‖² over x ≥ 0, row by row."""
    stacked = np.vstack([weight.numpy(), mu**0.5 * np.eye(weight.shape[1])])
    right = np.hstack([(u_next - bias).numpy(), mu**0.5 * v.numpy()])
    return np.stack([scipy_nnls(stacked, row)[0] for row in right])


def nnls_case(samples: int, units: int, out: int, mu: float, rounds: int, looped: int) -> dict[str, Any]:
    """The X-step of one hidden ReLU layer: ``units`` unknowns per sample, ``out`` units above."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight, bias = randn(out, units) * (2 / units) ** 0.5, 0.1 * randn(out)
    u_next, v = randn(samples, out).clamp(min=0), randn(samples, units)
    ours, theirs, busy, error, rows = [], [], [], 0.0, slice(0, looped)
    for _ in range(rounds):
        seconds, cpu, x = clock(lambda: solvers.nnls(weight, bias, u_next, v, 1.0, mu))
        ours.append(seconds)
        seconds, scipy_cpu, expected = clock(lambda: scipy_rows(weight, bias, u_next[rows], v[rows], mu))
        theirs.append(seconds * samples / looped)
        busy.append(scipy_cpu * samples / looped / cpu)
        error = max(error, float((x[rows] - torch.from_numpy(expected)).abs().max()))
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
    return {
        "case": f"nnls {samples} x {units}, {out} above, mu {mu:g}",
        "ours_seconds": statistics.median(ours),
        "scipy_seconds": statistics.median(theirs),
        "speed_up": ratio,
        "speed_up_in_processor_time": statistics.median(busy),
        "max_difference": error,
        "scipy_rows_timed": looped,
    }


def ridge_case(samples: int, inputs: int, outputs: int, rounds: int) -> dict[str, Any]:
    """The W-step of one layer, against the bare Gram matrix, factor and solve."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(samples, inputs, generator=generator)
    u = torch.randn(samples, outputs, generator=generator)

    def bare() -> Tensor:
        gram = a.mT @ a
        gram.diagonal().add_(1e-3)
        return torch.cholesky_solve(a.mT @ u, torch.linalg.cholesky(gram))

    ours, theirs = [], []
    for _ in range(rounds + 1):
        ours.append(clock(lambda: solvers.ridge(a, u, 1.0, 1e-3))[0])
        theirs.append(clock(bare)[0])
    ratio = statistics.median(o / t for o, t in zip(ours[1:], theirs[1:], strict=True))
    return {
        "case": f"ridge {samples} x {inputs} -> {outputs}",
        "ours_seconds": statistics.median(ours[1:]),
        "cholesky_seconds": statistics.median(theirs[1:]),
        "ratio": ratio,
    }


def main() -> None:
    """Print and write all cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--looped", type=int, default=100, help="rows SciPy is timed on")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_solvers.json"))
    arguments = parser.parse_args()
    rows = [
        nnls_case(10_000, 300, 100, 1.0, arguments.rounds, arguments.looped),
        nnls_case(10_000, 300, 300, 0.1, arguments.rounds, arguments.looped),
        nnls_case(10_000, 300, 300, 0.01, arguments.rounds, arguments.looped),
        ridge_case(10_000, 784, 300, 2 * arguments.rounds + 1),
        ridge_case(10_000, 300, 10, 4 * arguments.rounds + 1),
    ]
    for row in rows:
        print(row, flush=True)
    record = {
        "title": "Block solvers of lifted training beside what they replace",
        "scale": f"medians of interleaved rounds; SciPy timed on {arguments.looped} rows and scaled up",
        "seeds": [0],
        "command": "python benchmarks/lifted_solvers.py "
        f"--rounds {arguments.rounds} --looped {arguments.looped}",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
