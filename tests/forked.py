"""``python …`` in a new process that is forked from a server with torch loaded: imports are paid for once."""

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import multiprocessing as torch_processes

import no_waiting  # noqa: F401

LOADED = [
    "torch",
    "torch._dynamo",  # torch loads it with the first optimizer
    "torchlift.train.run",
    "torchlift.deploy",
    "torchlift.report",
    "torchlift.cli",
]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LOADED)


def life(arguments: Sequence[str], folder: Path, streams: Path, env: Mapping[str, str]) -> None:
    """``python arguments``: a module (-m), a program (-c) or a file."""
    os.chdir(folder)
    os.environ.update(env)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    multiprocessing.set_start_method("fork", force=True)  # as everywhere here
    kind, rest = arguments[0], list(arguments[1:])
    sys.path.insert(0, str(folder))
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "-c", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


class Python:
    """A process of ``python arguments``, with the methods of ``subprocess.Popen`` that tests need."""

    def __init__(self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.streams = Path(tempfile.mkdtemp())
        self.process: Any = CONTEXT.Process(target=life, args=(arguments, cwd, self.streams, env or {}))
        self.process.start()
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def said(self, stream: str = "out") -> str:
        """What it has written so far."""
        path = self.streams / stream
        return path.read_text() if path.exists() else ""

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("python", timeout or 0)
        return self.process.exitcode

    @property
    def returncode(self) -> int:
        return self.process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        out, err = (
            path.read_text() if (path := self.streams / name).exists() else "" for name in ("out", "err")
        )
        return out, err


def python(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` of ``python arguments``, streams captured."""
    process = Python(arguments, cwd or Path.cwd(), env)
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def wait_until(path: Path, process: Python) -> None:
    """Until a process has made a file."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def torchrun(*arguments: str) -> None:
    """``torchrun --nproc-per-node=2 arguments``, both forked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = [
        Python(arguments, Path.cwd(), meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    for process in ranks:
        out, err = process.communicate()
        assert process.returncode == 0, out + err


def in_two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """``work(rank, *arguments)`` as ranks 0 and 1."""
    torch_processes.start_processes(work, arguments, nprocs=2, start_method="forkserver")
