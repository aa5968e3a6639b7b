"""What one training step sends and holds in 1 to 4 processes, beside a model of both.

    python benchmarks/processes.py [--processes 1 2 3 4]    # rows of benchmarks/results/processes.json

Every process is started by ``torchrun`` on this machine (gloo), and trains one network by ``tl.fit``. Bytes
handed to all-reduce and broadcast are counted as torch dispatches them; bytes on the wire are those of the
loopback device (all processes together, other traffic of the machine included); memory is the peak of
the resident set above what the process held before the fit. Two fits of different lengths, subtracted, leave
the steps. The model is :func:`reduced`, :func:`wire` and :func:`memory`.
"""

import argparse
import functools
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchlift as tl

SAMPLES, BATCH, WIDTH = 480, 240, 768
SHORT, LONG = 1, 5
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""With these, memory that torch frees is not resident any more."""


def network() -> nn.Module:
    """Two and a half million parameters, samples that meet in five normalizations."""
    widths = [256, *[WIDTH] * 5]
    pairs = itertools.pairwise(widths)
    blocks = [nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()) for a, b in pairs]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 10))


def weights(model: nn.Module) -> int:
    """4 P: bytes of the trainable parameters, which are those of a gradient."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def reduced(model: nn.Module) -> int:
    """Bytes a process gives to all-reduce in a step: 4 P + Σ 4 · 2 (2 C + 1) over the batch norms.

    A batch norm of C channels shares C sums and a count, then C sums of squares, and the gradients of both.
    """
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    norms = [module for module in model.modules() if isinstance(module, kinds)]
    return weights(model) + sum(4 * 2 * (2 * norm.num_features + 1) for norm in norms)


def buffers(model: nn.Module) -> int:
    """Bytes of running statistics and dials, which the first process sends to the others in every step."""
    return sum(b.numel() * b.element_size() for b in model.buffers())


def wire(model: nn.Module, world: int) -> int:
    """Bytes all processes send in a step: 2 (n − 1) per byte reduced in a ring, n − 1 per byte of buffers."""
    return (world - 1) * (2 * reduced(model) + buffers(model))


def memory(model: nn.Module, saved: int, batch: int, world: int, states: int) -> int:
    """Bytes of a process above the given model and data, at the peak of the trial step or of training.

    ``fit`` trains a copy and keeps one of what it was given for the report. The trial step is taken on a copy
    with gradients of its own, first for the whole batch, then by the optimizer. Training holds gradients,
    optimizer states, torch's buckets for the gradients where there are several processes, and the process's
    part of the batch. ``saved``: bytes kept per sample for the backward pass; ``states``: the optimizer's
    numbers per parameter (SGD with momentum 1, Adam 2).
    """
    each = weights(model) + buffers(model)
    trial = 4 * each + max(batch * saved, states * each)
    training = (3 + states + (world > 1)) * each + -(-batch // world) * saved
    return max(trial, training)


class Counting(TorchDispatchMode):
    """Bytes given to each collective operation."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func.namespace == "c10d" and args and isinstance(args[0], list):
            tensors = [x for x in args[0] if isinstance(x, Tensor)]
            name = func._schema.name.removeprefix("c10d::").rstrip("_")
            self.bytes[name] = self.bytes.get(name, 0) + sum(x.numel() * x.element_size() for x in tensors)
        return func(*args, **(kwargs or {}))


def loopback() -> int:
    """Bytes sent on this machine's own device so far."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


def status(key: str) -> int:
    """A number of bytes from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def saved_bytes(model: nn.Module, x: Tensor) -> int:
    """Bytes per sample that autograd keeps for the backward pass, weights apart."""
    pointers, kept = {p.data_ptr() for p in model.parameters()}, dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in pointers and len(tensor) == len(x):
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(x)
    del out
    return sum(kept.values()) // len(x)


def run(epochs: int, model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    """One fit."""
    optimizer = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, foreach=False)
    tl.fit(model, data, optimizer=optimizer, epochs=epochs, batch_size=BATCH, keep="last", progress=False)


def worker(out: Path) -> None:
    """What one process sees; the first writes it down."""
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    draw = torch.Generator().manual_seed(1)
    data = (torch.randn(SAMPLES, 256, generator=draw), torch.randint(10, (SAMPLES,), generator=draw))
    torch.manual_seed(0)
    model = network()
    run(SHORT, model, data)  # whatever is loaded or grown once
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = status("VmRSS")
    run(LONG, model, data)
    peak = status("VmHWM") - before
    counts, sent = list[dict[str, int]](), list[int]()
    for epochs in (SHORT, LONG):
        start = loopback()
        with Counting() as counting:
            run(epochs, model, data)
        sent.append(loopback() - start)
        counts.append(counting.bytes)
    steps = (LONG - SHORT) * SAMPLES // BATCH
    each = {name: (counts[1][name] - counts[0].get(name, 0)) / steps for name in counts[1]}
    row = {"world": world, "peak": peak, "wire": (sent[1] - sent[0]) / steps, "given": each}
    (out / f"{rank}.json").write_text(json.dumps(row))


def started(world: int) -> list[dict[str, Any]]:
    """What every process of a run of ``world`` measured."""
    with tempfile.TemporaryDirectory() as folder:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        command = [sys.executable, *(launch if world > 1 else []), __file__, "--worker", folder]
        subprocess.run(command, check=True, env=os.environ | ENVIRONMENT)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(world)]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as on docs/processes.md: measured, and by the model in brackets, in megabytes."""

    def both(row: dict[str, Any], key: str) -> str:
        return f"{row[key] / 1e6:.3f} ({row[f'{key} by the model'] / 1e6:.3f})"

    keys = ("reduced", "broadcast", "wire", "peak")
    lines = ["| processes | reduced | broadcast | on the wire, all | peak of one |", "|---|" + "---:|" * 4]
    lines += [f"| {row['processes']} | {' | '.join(both(row, key) for key in keys)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """One row for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "processes.json")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 3, 4])
    chosen = parser.parse_args()
    if chosen.worker is not None:
        worker(chosen.worker)
        return
    earlier = json.loads(chosen.out.read_text())["rows"] if chosen.out.exists() else []
    rows = {row["processes"]: row for row in earlier if row["processes"] not in chosen.processes}
    model = network()
    saved = saved_bytes(model, torch.randn(BATCH, 256))
    about = {"what": str(__doc__).split("\n")[0], "torch": torch.__version__, "saved": saved, "batch": BATCH}
    for world in chosen.processes:
        ranks = started(world)
        rows[world] = {
            "processes": world,
            "reduced": ranks[0]["given"].get("allreduce", 0.0),
            "reduced by the model": reduced(model) if world > 1 else 0,
            "broadcast": ranks[0]["given"].get("broadcast", 0.0),
            "broadcast by the model": buffers(model) if world > 1 else 0,
            "wire": ranks[0]["wire"],
            "wire by the model": wire(model, world),
            "peak": max(one["peak"] for one in ranks),
            "peak by the model": memory(model, saved, BATCH, world, states=1),
        }
        print(rows[world], flush=True)
        record = about | {"rows": [rows[number] for number in sorted(rows)]}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
