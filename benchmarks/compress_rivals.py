"""``tl.compress`` beside what people use today, on five networks: accuracy against bytes and latency.

    OMP_NUM_THREADS=1 TORCHLIFT_DATA=DATA python benchmarks/compress_rivals.py

writes ``results/compress_rivals.json``, its pictures and its pages. DATA holds ``cifar10`` and ``MNIST``; the
pitch tracker's weights come from the package index. Rivals and their settings: ``compress_methods.py``;
networks: ``compress_networks.py``.

Every cell is a line of a journal in ``--work``, which holds trained networks and models, too: a run that was
interrupted goes on where it was, and one of other code starts over. The record is made from the journal after
every network and seed, and says what is missing.

Which of our files stands beside a rival's is chosen by the error of outputs on unlabelled inputs, never by
test accuracy. Differences are over the same test samples, and over seeds; their standard error is that of the
mean over test samples.
"""

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import compress_page
import torchlift as tl
from compress_methods import EPOCHS, METHODS, ONCE, Cell, folded, methods_of
from compress_networks import CALIBRATION, NETWORKS, PITCH, TRAINED, Case, case
from torchlift.journal import Journal

HERE = Path(__file__).parent
ORDER = ("LSTM", "ViT", "ResNet", "MobileNetV2-like", PITCH)
"""The cheap networks first."""

MARGIN = 1.02
"""A file of ours stands beside a rival's of at least 1 / 1.02 of its bytes."""

SAME_BITS = [f"ours, {bits} bits" for bits in (8, 4, 3, 2)]
"""Held against rounding to as many bits."""

Key = tuple[str, int, str]
"""Network, seed, method."""


def code() -> str:
    """A digest of what cells depend on."""
    files = sorted((Path(tl.__file__).parent / "compress").glob("*.py"))
    texts = [f.read_bytes() for f in (*files, HERE / "compress_methods.py", HERE / "compress_networks.py")]
    return hashlib.sha256(b"".join([torch.__version__.encode(), *texts])).hexdigest()[:12]


def packed(right: torch.Tensor) -> str:
    """Booleans as hexadecimal digits."""
    return np.packbits(right.numpy()).tobytes().hex()


def unpacked(cell: Cell) -> np.ndarray:
    """Which test samples a cell gets right: 0 or 1."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(cell["right"]), np.uint8))
    return bits[: cell["test samples"]].astype(float)


def run(one: Case, model: nn.Module, label: str, folder: Path) -> Cell:
    """A cell; a tool that does not take a network is a finding."""
    start = time.process_time()
    try:
        cell: Cell = METHODS[label](one, model, folder)
    except Exception as error:  # ours raise, a tool of others that does not take a network is a finding
        if label.startswith(("ours", "original", "call")):
            raise
        cell = {"fails": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}
    if "right" in cell:
        right = cell.pop("right")
        cell["accuracy"] = round(100 * float(right.float().mean()), 2)
        cell |= {"test samples": len(right), "right": packed(right)}
    return cell | {"CPU seconds": round(time.process_time() - start, 2)}


# The record


def difference(pairs: Sequence[tuple[Cell, Cell]]) -> dict[str, float]:
    """Points of accuracy of the first less the second, with the standard error; a pair for each seed."""
    each = 100 * np.mean([unpacked(ours) - unpacked(theirs) for ours, theirs in pairs], axis=0)
    error = float(each.std(ddof=1)) / len(each) ** 0.5
    return {"points": round(float(each.mean()), 3), "standard error": round(error, 3)}


def beside(rivals: Sequence[Cell], ours: Sequence[Mapping[str, Cell]]) -> dict[str, Any]:
    """A rival's cells, one for each seed, beside ours of no more bytes."""
    chosen: list[str] = []
    for rival, own in zip(rivals, ours, strict=True):
        small = {name: c for name, c in own.items() if c["bytes"] <= MARGIN * rival["bytes"]}
        if not small:
            return {"none of ours as small": True}
        chosen.append(min(small, key=lambda name: small[name]["output error"]))
    pairs = [(own[name], rival) for own, name, rival in zip(ours, chosen, rivals, strict=True)]
    sizes = [mine["bytes"] / theirs["bytes"] for mine, theirs in pairs]
    return {"ours": chosen, **difference(pairs), "bytes": round(statistics.mean(sizes), 3)}


def at_same_bits(ours: Sequence[Cell], theirs: Sequence[Cell]) -> dict[str, Any]:
    """Ours and rounding to as many bits."""
    pairs = list(zip(ours, theirs, strict=True))
    errors = [round(mine["output error"] / other["output error"], 4) for mine, other in pairs]
    return {**difference(pairs), "output error": errors}


def comparisons(cells: Mapping[Key, Cell]) -> dict[str, Any]:
    """{network: {rival: ours beside it}}, of the seeds whose rivals have all run: a file of ours that is not
    there is not chosen."""
    result: dict[str, Any] = {}
    for network in ORDER:
        needed = [m for m in methods_of(network, 0) if not m.startswith("ours") or m in SAME_BITS]
        seeds = [
            s for s in range(9) if all((network, s, m) in cells for m in needed if s == 0 or m not in ONCE)
        ]
        rows = [{m: cells[network, s, m] for m in METHODS if (network, s, m) in cells} for s in seeds]
        if not rows:
            continue
        took = [m for m in METHODS if all("accuracy" in row.get(m, ()) for row in rows)]
        mine = [{m: row[m] for m in took if m.startswith("ours")} for row in rows]
        rivals = [m for m in took if not m.startswith(("ours", "original"))]
        result[network] = {
            "seeds": seeds,
            "rivals": {m: beside([row[m] for row in rows], mine) for m in rivals},
            "rounding": {
                f"{b} bits": at_same_bits(
                    [row[f"ours, {b} bits"] for row in rows], [row[f"rounding, {b} bits"] for row in rows]
                )
                for b in (8, 4, 3, 2)
            },
        }
    return result


def missing(cells: Mapping[Key, Cell], seeds: int) -> list[str]:
    """What was not run, by network and seed."""
    gaps: list[str] = []
    for network in ORDER:
        for seed in range(seeds):
            left = [m for m in methods_of(network, seed) if (network, seed, m) not in cells]
            every = methods_of(network, seed)
            some = ", ".join(left) if len(left) <= 4 else f"{len(left)} of {len(every)} methods"
            if left:
                gaps.append(f"{network} seed {seed}" + ("" if len(left) == len(every) else f" ({some})"))
    return gaps


def record(cells: Mapping[Key, Cell], seeds: int) -> dict[str, Any]:
    """All cells, without the single answers, and what follows from them."""
    gaps = missing(cells, seeds)
    return {
        **({"partial": f"not run: {'; '.join(gaps)}"} if gaps else {}),
        "command": "OMP_NUM_THREADS=1 python benchmarks/compress_rivals.py",
        "torch": torch.__version__,
        "threads": 1,
        "seeds": seeds,
        "images to train with": TRAINED,
        "calibration inputs": CALIBRATION,
        "epochs of polishing": EPOCHS,
        "ours beside": comparisons(cells),
        "cells": {
            "; ".join(map(str, key)): {k: v for k, v in cell.items() if k != "right"}
            for key, cell in cells.items()
        },
    }


def write(path: Path, cells: Mapping[Key, Cell], seeds: int) -> None:
    """The record of what there is."""
    path.write_text(json.dumps(record(cells, seeds), indent=1) + "\n")


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="with cifar10 and MNIST; default: TORCHLIFT_DATA")
    parser.add_argument(
        "--work", type=Path, default=Path("compress-rivals"), help="journal, networks, models"
    )
    parser.add_argument(
        "--networks", nargs="*", default=list(ORDER), choices=NETWORKS, help="run these alone"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "compress_rivals.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.work / code()
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "cells.jsonl")
    cells: dict[Key, Cell] = {tuple(line["key"]): line["cell"] for line in journal.read()}  # pyright: ignore
    for network in [n for n in ORDER if n in options.networks]:
        for seed in range(options.seeds):
            left = [m for m in methods_of(network, seed) if (network, seed, m) not in cells]
            if not left:
                continue
            one = case(network, seed, options.data, options.work)
            model, own = folded(one), folder / f"{network}-{seed}"
            own.mkdir(exist_ok=True)
            for label in left:
                torch.manual_seed(seed)
                cell = run(one, model, label, own)
                cells[network, seed, label] = cell
                journal.append({"key": [network, seed, label], "cell": cell})
                said = {k: v for k, v in cell.items() if k != "right"}
                print(f"{network}; {seed}; {label}: {json.dumps(said)}", flush=True)
            write(options.out, cells, options.seeds)
    write(options.out, cells, options.seeds)
    if options.out.parent == compress_page.RESULTS:
        compress_page.main()


if __name__ == "__main__":
    main()
