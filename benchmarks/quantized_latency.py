"""Calls in ONNX Runtime with integer weights beside the same model in float: one thread, interleaved.

    python benchmarks/quantized_latency.py

Weights of 3 bits are stored as int4, of 7 bits as int8, each with a DequantizeLinear before it. Seconds are
those of the processor. Writes benchmarks/results/quantized_latency.json; rows that are there are kept.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn

import torchlift as tl
from torchlift.methods.precision.grids import auto_scale, on_grid

MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "LeNet-5": (tl.models.LeNet5(), (3, 32, 32)),
    "ResNet-20": (tl.models.resnet(20), (3, 32, 32)),
    "784-1024-1024-10": (tl.models.MLP(784, 1024, 1024, 10), (784,)),
}


def quantized(model: nn.Module, bits: int) -> nn.Module:
    """All matrices and kernels on the grid of ``bits``."""
    small = copy.deepcopy(model).eval()
    with torch.no_grad():
        for weight in small.parameters():
            if weight.ndim > 1:
                scale = auto_scale(weight)
                bound = scale * (2 - 2.0 ** (1 - bits))
                weight.copy_(on_grid(weight.clamp(-bound, bound), bits, scale))
    return small


def session(path: Path) -> Any:
    """One thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def times(paths: list[Path], x: torch.Tensor, rounds: int) -> list[float]:
    """Medians in milliseconds, each round all files in turn."""
    sessions = [session(path) for path in paths]
    feed = {sessions[0].get_inputs()[0].name: x.numpy()}
    found: list[list[float]] = [[] for _ in paths]
    for number in range(rounds + 3):
        for place, one in enumerate(sessions):
            start = time.process_time()
            one.run(None, feed)
            if number >= 3:
                found[place].append(1000 * (time.process_time() - start))
    return [statistics.median(values) for values in found]


def main() -> None:
    """Every model, grid and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/quantized_latency.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    rows: list[dict[str, Any]] = known
    done = {(row["model"], row["bits"], row["batch"]) for row in rows}
    for name, (model, shape) in MODELS.items():
        for bits in (3, 7):
            for batch in (1, 32):
                if (name, bits, batch) in done:
                    continue
                x = torch.randn(batch, *shape)
                with tempfile.TemporaryDirectory() as folder:
                    path, plain = Path(folder) / "m.onnx", Path(folder) / "float.onnx"
                    small = quantized(model, bits)
                    told = tl.deploy.export_quantized(small, x, path)
                    tl.deploy.export(small, x, plain)
                    integer, dense = times([path, plain], x, given.rounds)
                rows.append(
                    {
                        "model": name,
                        "bits": bits,
                        "batch": batch,
                        "integer_ms": round(integer, 4),
                        "float_ms": round(dense, 4),
                        "ratio": round(integer / dense, 3),
                        "file_bytes": told.file_bytes,
                        "float_bytes": told.float_bytes,
                        "error": told.error,
                        "runtime_error": told.runtime_error,
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
                found = {"onnxruntime": onnxruntime.__version__, "rounds": given.rounds, "rows": rows}
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
