"""The law of processes: two under data-parallel training do what one does on the whole batch."""

import copy
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from torchlift.core import Batch, Lift, Problem, Task
from torchlift.testing.steps import Steps, descend, state_copy

Case = tuple[Lift, Task, Batch]
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How processes start: without what this one has loaded and begun."""


def agrees_across_processes(cases: Mapping[str, Case], tolerance: float = 1e-5) -> None:
    """For every case, parameters after a few steps on two gloo processes are those of one process.

    Cases must be importable (they are sent to new processes). Each process gets one half of the batch.
    """
    expected = {name: alone(*case) for name, case in cases.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states.pt"
        arguments = (free_port(), dict(cases), path)
        multiprocessing.start_processes(work, arguments, nprocs=2, start_method=START)
        states: dict[str, dict[str, Tensor]] = torch.load(path, weights_only=True)
    for name, state in states.items():
        worst = max(
            float((state[key] - want).abs().max()) for key, want in expected[name].items() if want.numel()
        )
        assert worst <= tolerance, f"{name}: one and two processes differ by {worst}"


def alone(lift: Lift, task: Task, batch: Batch) -> dict[str, Tensor]:
    """The parameters after training in this process."""
    lifted = start(lift, task, batch)
    descend(lifted, batch)
    return floating_state(lifted)


def start(lift: Lift, task: Task, batch: Batch) -> Problem:
    """The same lifted problem in every process."""
    torch.manual_seed(0)
    return lift.lift(copy.deepcopy(task), Steps(batch))


def floating_state(problem: Problem) -> dict[str, Tensor]:
    """Floating-point state, as float64."""
    return {name: t.double() for name, t in state_copy(problem).items() if t.is_floating_point()}


def work(rank: int, port: int, cases: dict[str, Case], path: Path) -> None:
    """One process's life."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    states: dict[str, dict[str, Tensor]] = {}
    for name, (lift, task, batch) in cases.items():
        problem = start(lift, task, batch)
        parallel: Any = DistributedDataParallel(problem)
        descend(parallel, slice_batch(batch, rank))
        states[name] = floating_state(problem)
    if rank == 0:
        torch.save(states, path)
    distributed.barrier()
    distributed.destroy_process_group()


def slice_batch(batch: Batch, rank: int) -> Batch:
    """A process's half."""
    cut = lambda t: t[: len(t) // 2] if rank == 0 else t[len(t) // 2 :]
    return {k: cut(v) for k, v in batch.items()} if isinstance(batch, dict) else tuple(map(cut, batch))


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
