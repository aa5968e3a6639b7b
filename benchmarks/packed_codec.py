"""What the packed file's coder takes, in bytes and in time, one thread: beside the entropy and beside zlib.

    python benchmarks/packed_codec.py

For each kind of weights: bytes over the bound (the entropy of what is coded), zlib's bytes over the same,
and the medians of encoding and decoding speed in MB of float32 per second of the processor (1 MB is 250,000
weights). Writes benchmarks/results/packed_codec.json.
"""

import argparse
import io
import json
import os
import statistics
import time
import zlib
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import Tensor

from torchlift.packed import tensors
from torchlift.packed.budget import Budget
from torchlift.packed.tensors import Item

SCALE = 0.0371


def on_grid(weights: Tensor, bits: int) -> Tensor:
    """Multiples of 2^(1−bits) within ±2, times a scale."""
    step = 2.0 ** (1 - bits)
    return (weights / step).round().mul(step).clamp(-2, 2) * SCALE + 0.0


def kept(weights: Tensor, share: float) -> Tensor:
    """All but a share of the entries set to zero."""
    return torch.where(torch.rand(weights.shape) < share, weights, torch.zeros(()))


def by_rows(weights: Tensor, levels: int) -> Tensor:
    """A matrix of rows of 2000, each on a grid of its own scale: k·step with |k| ≤ levels."""
    rows = weights.reshape(-1, 2000)
    step = rows.abs().amax(1, keepdim=True) / levels if levels > 1 else rows.abs().mean(1, keepdim=True)
    return (rows / step).round().clamp(-levels, levels) * step + 0.0


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "three values": lambda w: on_grid(w / 2, 1),
    "4 bits": lambda w: on_grid(w / 2.5, 4),
    "8 bits": lambda w: on_grid(w / 2.5, 8),
    "16,000 values": lambda w: (w * 2000).round() * 0.00071 + 0.0,
    "5 % kept": lambda w: kept(w, 0.05),
    "5 % kept, 4 bits": lambda w: kept(on_grid(w, 4), 0.05),
    "1 % kept, 3 bits": lambda w: kept(on_grid(w, 3), 0.01),
    "float32 as trained": lambda w: w,
    "three values, a scale per row": lambda w: by_rows(w, 1),
    "8 bits, a scale per row": lambda w: by_rows(w, 127),
    "5 % kept, 4 bits, a scale per row": lambda w: kept(by_rows(w, 7), 0.05),
}


RECORDED = {"recorded: 4 bits": (7,), "recorded: 8 bits": (127,), "recorded: 5 % kept, 4 bits": (7, 0.05)}
KINDS |= {name: lambda w: w for name in RECORDED}
PIECE = 16_000
PIECES = ("three values", "4 bits", "5 % kept, 4 bits")
"""Kinds also measured as many small tensors."""


def row(items: list[Item], rounds: int) -> dict[str, float]:
    """Sizes and speeds of some tensors."""
    megabytes, encoding, decoding = sum(4 * item.value.numel() for item in items) / 1e6, [], []
    size = least = 0
    for _ in range(rounds):
        start = time.process_time()
        written = tensors.write_items(items)
        encoding.append(megabytes / (time.process_time() - start))
        data = b"".join(written.streams)
        size, least = len(data) + len(zlib.compress(written.plan, 9)), written.ideal
        start = time.process_time()
        budget = Budget(2**32, 2**16 + len(data))
        again = list(tensors.read_items(written.plan, io.BytesIO(data), 0, len(data), budget))
        decoding.append(megabytes / (time.process_time() - start))
        for one, other in zip(items, again, strict=True):
            assert torch.equal(one.value.view(torch.int32), other.value.view(torch.int32))
    content = b"".join(item.value.numpy().tobytes() for item in items)
    return {
        "bytes": size,
        "bound": least,
        "ratio": size / least,
        "zlib_ratio": len(zlib.compress(content, 9)) / least,
        "encode_mb_s": statistics.median(encoding),
        "decode_mb_s": statistics.median(decoding),
    }


def recorded(weights: Tensor, levels: int, share: float = 1.0) -> Item:
    """Rows on grids of their own, as a projection leaves them: with their steps, and a mask."""
    value = by_rows(weights, levels)
    rows = weights.reshape(-1, 2000)
    step = rows.abs().amax(1, keepdim=True) / levels
    mask = torch.rand(rows.shape) < share if share < 1 else None
    return Item(value if mask is None else value * mask + 0.0, step, mask)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "packed_codec.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[str, dict[str, float]] = {}
    print(f"{'':36}{'bytes':>12}{'over bound':>12}{'zlib':>8}{'write MB/s':>12}{'read MB/s':>12}")
    cases: dict[str, tuple[str, int | None]] = {name: (name, None) for name in KINDS}
    cases |= {f"{name}, tensors of {PIECE:,}": (name, PIECE) for name in PIECES}
    for name, (kind, piece) in cases.items():
        weights = KINDS[kind](torch.randn(options.entries))
        items = [Item(chunk) for chunk in ([weights] if piece is None else weights.split(piece))]
        if kind in RECORDED:
            items = [recorded(torch.randn(options.entries), *RECORDED[kind])]
        figures = rows[name] = row(items, options.rounds)
        print(
            f"{name:36}{figures['bytes']:12,.0f}{figures['ratio']:12.4f}{figures['zlib_ratio']:8.2f}"
            f"{figures['encode_mb_s']:12.0f}{figures['decode_mb_s']:12.0f}",
            flush=True,
        )
    options.out.write_text(
        json.dumps({"entries": options.entries, "rounds": options.rounds, "rows": rows}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
