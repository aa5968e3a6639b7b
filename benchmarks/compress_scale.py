"""``tl.compress`` on a transformer: CPU minutes, and the peak of memory beside the model's own.

    OMP_NUM_THREADS=1 python benchmarks/compress_scale.py --parameters 100 --out benchmarks/results

An encoder with random weights reads random tokens: what is measured does not depend on their values. Memory
is the peak of the process's resident set, the model itself included, above what it had before there was a
model. It may be three times the model, two batches and the largest Gram matrix.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.compress.calibration import BATCH

WORDS = 1000


class Encoder(nn.Module):
    """Tokens → logits of each position."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (samples, length) → logits."""
        return self.head(self.layers(self.embed(tokens)))


def size_for(millions: float) -> tuple[int, int]:
    """Width and depth of an encoder of so many million parameters: 12 layers, or fewer of 64 channels."""
    width = max(64, 64 * round((1e6 * millions / (12 * 12)) ** 0.5 / 64))
    return width, max(1, round(1e6 * millions / (12 * width**2)))


def peak_bytes() -> int:
    """The largest resident set so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_bytes() -> int:
    """The resident set now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def allowed_bytes(model: int, width: int, length: int) -> int:
    """Three models, two batches and the largest Gram matrix, of the second layer of an MLP. A batch holds in
    a layer its input, queries, keys, values, heads, sums, and four hidden of four times the width."""
    return 3 * model + 2 * BATCH * length * width * 4 * 14 + (4 * width) ** 2 * 4


def measured(millions: float, samples: int, length: int, options: dict[str, Any]) -> dict[str, Any]:
    """One call of compress."""
    torch.manual_seed(0)
    tokens = torch.randint(WORDS, (samples, length))
    tl.compress(Encoder(64, 1).eval(), tokens[:8, :8], progress=False, **options)  # modules are loaded
    before = resident_bytes()
    model = Encoder(*size_for(millions)).eval()
    own = 4 * sum(p.numel() for p in model.parameters())
    cpu, wall = time.process_time(), time.perf_counter()
    small = tl.compress(model, tokens, progress=False, **options)
    return {
        "options": options,
        "width and depth": size_for(millions),
        "tokens": [samples, length],
        "parameters": own // 4,
        "CPU minutes": round((time.process_time() - cpu) / 60, 2),
        "minutes": round((time.perf_counter() - wall) / 60, 2),
        "model, MB": round(own / 1e6, 1),
        "peak, MB": round((peak_bytes() - before) / 1e6, 1),
        "allowed, MB": round(allowed_bytes(own, size_for(millions)[0], length) / 1e6, 1),
        **small.card["achieved"],
    }


def main() -> None:
    """One size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=float, default=100, help="in millions")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--ratio", type=float)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    options = {name: value for name in ("bits", "ratio") if (value := getattr(arguments, name))}
    record = measured(arguments.parameters, arguments.samples, arguments.length, options)
    command = f"python benchmarks/compress_scale.py --parameters {arguments.parameters:g}"
    record |= {"command": command, "threads": torch.get_num_threads(), "torch": torch.__version__}
    print(json.dumps(record))
    if arguments.out is not None:
        path = arguments.out / f"compress_scale_{arguments.parameters:g}M.json"
        path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
