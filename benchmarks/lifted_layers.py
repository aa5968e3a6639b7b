"""Depth × processes: a sweep of lifted training with its layers partitioned, beside back-propagation.

    python benchmarks/lifted_layers.py --depths 8 32 128 512 --processes 1 2 4

CPU seconds of the busiest process for one red-black sweep (one proximal step per block), as the machine may
have fewer cores than processes; bytes that a process sends, bytes of states and weights that it holds.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import torchlift as tl
from torchlift import lifted
from torchlift.train.stepping import StepContext

WIDTH, SAMPLES, SWEEPS = 64, 1_000, 2
BYTES = {"sent": 0}


def network(depth: int) -> nn.Sequential:
    """So many hidden ReLU layers, weights that keep the size of a signal."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layer = nn.Linear(WIDTH, WIDTH)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def data() -> tuple[Tensor, Tensor]:
    """Points around ten centers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (SAMPLES,), generator=generator)
    centers = torch.randn(10, WIDTH, generator=generator)
    return centers[labels] + torch.randn(SAMPLES, WIDTH, generator=generator), labels


def counted(function: Any) -> Any:
    """A function that sends its first argument, counted."""

    def call(tensor: Tensor, *rest: Any, **named: Any) -> Any:
        BYTES["sent"] += tensor.numel() * tensor.element_size()
        return function(tensor, *rest, **named)

    return call


def lifted_process(rank: int, world: int, port: int, depths: list[int], out: str) -> None:
    """What one process does at every depth."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        dist.isend, dist.send = counted(dist.isend), counted(dist.send)
    rows = [sweeps(depth, StepContext(rank=rank, world=world)) for depth in depths]
    Path(out, f"{rank}.json").write_text(json.dumps(rows))
    if world > 1:
        dist.destroy_process_group()


def sweeps(depth: int, context: StepContext) -> dict[str, float]:
    """CPU seconds, bytes and the loss of the forward pass after all sweeps."""
    method = lifted.BCD(order="red_black", update="linearized", parallel="layers")
    problem: Any = method.lift(tl.Task(network(depth), "cross_entropy"))
    problem.prepare([])
    x, y = data()
    batch = x, y, torch.arange(len(x))
    start = time.process_time()
    problem.advance(batch, context)  # with the forward pass
    first = time.process_time() - start
    start, before = time.process_time(), BYTES["sent"]
    for _ in range(SWEEPS):
        problem.advance(batch, context)
    figures = {
        "sweep": (time.process_time() - start) / SWEEPS,
        "first": first,
        "sent": (BYTES["sent"] - before) / SWEEPS,
        "states": size(problem.kept),
        "weights": size(layer.theta for layer in problem.network.layers),
    }
    problem.eval()  # brings all weights together
    return figures | {"loss": float(problem.objective((x, y)))}


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of all of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def busiest(depths: list[int], world: int, folder: Path) -> list[dict[str, float]]:
    """At every depth, the most of all processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if world == 1:
        lifted_process(0, 1, port, depths, str(folder))
    else:
        mp.spawn(lifted_process, (world, port, depths, str(folder)), nprocs=world)
    per_rank = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]
    return [{key: max(row[key] for row in rows) for key in rows[0]} for rows in zip(*per_rank, strict=True)]


def backward(depth: int) -> dict[str, float]:
    """A step of Adam on all samples: forward, backward, update; bytes of activations it keeps."""
    model, (x, y) = network(depth), data()
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def step() -> float:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return float(value)

    step()
    start = time.process_time()
    for _ in range(SWEEPS):
        step()
    return {
        "seconds": (time.process_time() - start) / SWEEPS,
        "states": 4 * SAMPLES * WIDTH * (2 * depth),
        "loss": step(),
    }


def main() -> None:
    """Write ``benchmarks/results/lifted_layers.json``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    default = Path(__file__).parent / "results" / "lifted_layers.json"
    parser.add_argument("--out", type=Path, default=default)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    folder = chosen.out.parent / ".lifted_layers"
    folder.mkdir(parents=True, exist_ok=True)
    plain = {depth: backward(depth) for depth in chosen.depths}
    rows: list[dict[str, Any]] = []
    for world in chosen.processes:
        for depth, ours in zip(chosen.depths, busiest(chosen.depths, world, folder), strict=True):
            rows.append(
                {
                    "hidden layers": depth,
                    "processes": world,
                    "sweep": ours["sweep"],
                    "first sweep": ours["first"],
                    "back-propagation": plain[depth]["seconds"],
                    "sweep / back-propagation": ours["sweep"] / plain[depth]["seconds"],
                    "MB of states": ours["states"] / 1e6,
                    "MB of weights": ours["weights"] / 1e6,
                    "MB of activations": plain[depth]["states"] / 1e6,
                    "MB sent": ours["sent"] / 1e6,
                    "loss": ours["loss"],
                    "loss of Adam": plain[depth]["loss"],
                }
            )
            print(rows[-1], flush=True)
    rows.sort(key=lambda row: (row["hidden layers"], row["processes"]))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    page = {
        "title": "Lifted training with its layers partitioned over processes",
        "scale": f"{SAMPLES} samples, width {WIDTH}, {SWEEPS} sweeps after the first, one seed; "
        f"CPU seconds of the busiest process, {os.cpu_count()} cores shared with other work",
        "columns": list(rows[0]),
        "rows": rows,
    }
    chosen.out.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
