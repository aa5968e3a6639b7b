"""Worker processes that end with the search, however it ends."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

from torchlift.errors import TorchliftError


def run_workers(work: Callable[[int], None], count: int) -> None:
    """``work(rank)`` in so many fresh processes; the first error of any is ours."""
    context = multiprocessing.get_context("spawn")
    problems = context.SimpleQueue()
    processes = [
        context.Process(target=attempt, args=(work, rank, problems), daemon=True) for rank in range(count)
    ]
    try:
        for process in processes:
            start(process)
        for process in processes:
            process.join()
    finally:
        for process in processes:
            if process.pid is not None and process.is_alive():
                process.terminate()
    if not problems.empty():
        raise TorchliftError(problems.get())
    if any(process.exitcode for process in processes):
        raise TorchliftError(
            "a worker process died; its trial is lost, the study is kept: resume=True goes on."
        )


def start(process: Any) -> None:
    """Start a process, or say why what it needs cannot be sent to it."""
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TorchliftError(
            f"several workers need a model factory, recipe and data that can be pickled: {error}."
        ) from error


def attempt(work: Callable[[int], None], rank: int, problems: Any) -> None:
    """Run a worker; leave Ctrl-C to the parent, end when it does, and hand errors over in one line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        work(rank)
    except Exception as error:
        problems.put(f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error))


def end_with_parent() -> None:
    """Wait for the parent's death, then die: nobody would collect what this process finds."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)
