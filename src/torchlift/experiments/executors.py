"""Jobs on engines that exist: anything with ``submit(function, argument) -> future`` and ``future.result()``.

A process pool of our own (``"processes"``, or how many), ``concurrent.futures``, Dask's ``Client``, submitit.
A job whose worker is lost is submitted again; a durable run then goes on from its folder.
"""

import concurrent.futures
import contextlib
import contextvars
import importlib.util
import io
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchlift.errors import LostWorkerError, TorchliftError

LOG = logging.getLogger("torchlift")
ATTEMPTS = 4
"""How often a job may lose its worker; one that ends its own worker (memory, a crash in C) stops at this."""
LOST = {
    "BrokenExecutor",
    "CanceledError",
    "InUseError",
    "Interrupted",
    "KilledWorker",
    "UncompletedJobError",
}
"""Errors, by the names of their classes, that tell of the worker and not of the job."""
ONE = threading.Lock()
"""One job at a time in a process: jobs seed torch's random streams, which all threads share."""

LARGE = 2**16
"""Bytes of memory from which an array is packed apart from the jobs it is in."""

Payload = tuple[bytes, dict[int, bytes]]
"""A job, and the large arrays in it, which it shares with others."""

J = TypeVar("J")
R = TypeVar("R")


class Submits(Protocol):
    """What a job is given to."""

    @property
    def submit(self) -> Callable[..., Any]:
        """``submit(function, argument)``: something with ``result()``."""
        ...


Executor = Submits | str | int | None
"""None: this process, one job after the other. ``"processes"``: one process per core; a number: so many."""


DEFAULT: contextvars.ContextVar[Executor] = contextvars.ContextVar("executor", default=None)


@contextlib.contextmanager
def using(executor: Executor) -> Generator[Submits | None]:
    """Where jobs go in this stretch of code unless they say so themselves: for code that has no argument."""
    with opened(executor) as pool:
        token = DEFAULT.set(pool)
        try:
            yield pool
        finally:
            DEFAULT.reset(token)


def current(executor: Executor) -> Executor:
    """The executor that was given, or that of :func:`using`."""
    return DEFAULT.get() if executor is None else executor


def run_all(function: Callable[[J], R], jobs: Iterable[J], executor: Executor = None) -> list[R]:
    """``function(job)`` of every job, in the order of the jobs."""
    listed = list(jobs)
    with opened(current(executor)) as pool:
        if pool is None:
            return [function(job) for job in listed]
        packer = Packer()
        payloads = {number: packer.packed((function, job)) for number, job in enumerate(listed)}
        done: dict[int, R] = {}
        for attempt in range(ATTEMPTS):
            left = {number: payload for number, payload in payloads.items() if number not in done}
            lost = collect(left, pool, done)
            if lost is None:
                return [done[number] for number in range(len(listed))]
            LOG.warning("a worker was lost (%s); %d jobs are submitted again.", lost, len(listed) - len(done))
            time.sleep(0.2 * attempt)
    raise LostWorkerError(
        f"jobs lost their worker {ATTEMPTS} times: check its memory and logs; resume=True goes on."
    )


def collect(left: dict[int, Payload], pool: Submits, done: dict[int, Any]) -> str | None:
    """Submit, wait, and fill ``done``; what was said when a worker was lost."""
    lost: str | None = None
    futures: dict[int, Any] = {}
    try:
        for number, payload in left.items():
            futures[number] = pool.submit(invoke, payload)
    except Exception as error:
        lost = blame(error, futures.values())
    for number, future in futures.items():
        try:
            done[number] = pickle.loads(future.result())
        except BaseException as error:
            lost = blame(error, futures.values())
    return lost


def blame(error: BaseException, futures: Iterable[Any]) -> str:
    """What to say of a lost worker; any other error ends all jobs, those that an engine wraps in one line."""
    failed = type(error).__name__ == "FailedJobError"  # submitit: the job's own traceback, as text
    if not failed and any(kind.__name__ in LOST for kind in type(error).__mro__):
        return f"{type(error).__name__} {error}".strip().splitlines()[0]
    for future in futures:
        with contextlib.suppress(Exception):
            future.cancel()  # nobody waits for it any more
    if failed:
        raise TorchliftError(last_line(str(error))) from error
    raise error


def last_line(traceback: str) -> str:
    """What a traceback says at its end, before what submitit adds about its logs."""
    lines = [line.strip() for line in traceback.splitlines() if line.strip() and not set(line) <= {"-", " "}]
    notes = [number for number, line in enumerate(lines) if line.startswith("You can check full logs")]
    return lines[(notes[0] if notes else len(lines)) - 1]


def invoke(payload: Payload) -> bytes:
    """In a worker: one job."""
    with ONE:
        function, job = unpacked(payload)
        return as_bytes(function(job))


def as_bytes(value: Any, persistent_id: Callable[[Any], Any] | None = None) -> bytes:
    """A job or its result as bytes: with cloudpickle where it is there, which also takes lambdas."""
    kind = pickle.Pickler
    if importlib.util.find_spec("cloudpickle") is not None:
        import cloudpickle

        kind = cloudpickle.Pickler
    file = io.BytesIO()
    pickler = kind(file)
    if persistent_id is not None:
        pickler.persistent_id = persistent_id
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise TorchliftError(
            f"executor= sends models, recipes and data to other processes, which cannot be done: {reason}."
        ) from error
    return file.getvalue()


class Packer:
    """Jobs as bytes: a large array that several have in common is packed once, without its whole storage."""

    def __init__(self) -> None:
        self.arrays: dict[int, tuple[Any, bytes]] = {}
        """By their identity: the array, so that it stays, and its bytes."""

    def packed(self, job: Any) -> Payload:
        """A job, and the bytes of the arrays in it."""
        used: dict[int, bytes] = {}

        def persistent_id(value: Any) -> int | None:
            if not stands_apart(value):
                return None
            key = id(value)
            if key not in self.arrays:
                self.arrays[key] = value, as_bytes(value.clone() if isinstance(value, Tensor) else value)
            used[key] = self.arrays[key][1]
            return key

        return as_bytes(job, persistent_id), used


def stands_apart(value: Any) -> bool:
    """Whether a value of a job is a large array of numbers, or a part of one: data, not weights."""
    if type(value) is Tensor and value.layout is torch.strided and not value.requires_grad:
        return value.untyped_storage().nbytes() >= LARGE
    return type(value) is np.ndarray and value.dtype != object and value.nbytes >= LARGE


def unpacked(payload: Payload) -> Any:
    """A job, each of its arrays loaded once."""
    job, arrays = payload
    loaded = {key: pickle.loads(one) for key, one in arrays.items()}
    unpickler = pickle.Unpickler(io.BytesIO(job))
    unpickler.persistent_load = loaded.__getitem__
    return unpickler.load()


class Processes:
    """A pool of our own processes: started when first used, and again after one of them was lost."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.jobs = 0
        """How many were submitted."""
        self.pool: concurrent.futures.ProcessPoolExecutor | None = None

    def submit(self, function: Callable[[Payload], bytes], payload: Payload) -> Any:
        """A future."""
        self.jobs += 1
        try:
            return self.started().submit(function, payload)
        except concurrent.futures.BrokenExecutor:
            self.end()  # waits for the others, who save before they go
            return self.started().submit(function, payload)

    def started(self) -> concurrent.futures.ProcessPoolExecutor:
        """The pool, each process with its share of the cores."""
        if self.pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.count)
            context = multiprocessing.get_context("spawn")
            self.pool = concurrent.futures.ProcessPoolExecutor(self.count, context, start_worker, (threads,))
        return self.pool

    def end(self, now: bool = False) -> None:
        """Wait for what runs, or have it save and stop."""
        if self.pool is None:
            return
        if now:
            for process in list((getattr(self.pool, "_processes", None) or {}).values()):
                process.terminate()
        self.pool.shutdown(cancel_futures=True)
        self.pool = None


@contextlib.contextmanager
def opened(executor: Executor) -> Generator[Submits | None]:
    """The caller's engine as it is; our own processes to the end of this stretch of code; None for none."""
    if executor is None:
        yield None
    elif not isinstance(executor, str | int):
        if not callable(getattr(executor, "submit", None)):
            raise TorchliftError(f"executor is 'processes', a number, or has submit(); got {executor!r:.60}.")
        yield executor
    else:
        pool = Processes(process_count(executor))
        try:
            yield pool
        except BaseException:
            pool.end(now=True)
            raise
        pool.end()


def process_count(executor: str | int) -> int:
    """How many: one per core, unless a number is given."""
    if executor == "processes":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(executor, bool) or not isinstance(executor, int) or executor < 1:
        raise TorchliftError(f"executor is 'processes', a number, or has submit(); got {executor!r}.")
    return executor


def start_worker(threads: int) -> None:
    """A worker process: its share of the cores, Ctrl-C left to the parent, and an end with it."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait for the parent's death, then die: nobody would collect what this process finds."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)
