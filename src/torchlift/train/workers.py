"""DataLoader workers: those that die, those that hang, those that keep random streams of their own."""

import contextlib
import copy
import threading
import time
import warnings
from collections.abc import Generator, Iterator
from typing import Any

from torch.utils.data import DataLoader

from torchlift.core import Batch
from torchlift.errors import DataError

STATE = threading.local()


@contextlib.contextmanager
def named_worker_errors() -> Generator[None]:
    """Turn the death of a worker into one line that names the fix."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        with contextlib.suppress(RuntimeError):
            time.sleep(0.5)  # torch may tell of the same death a second time, by a signal
        if isinstance(error, EOFError) and not between_processes(error):
            raise
        first = next(iter(str(error).splitlines()), "it hung up")
        raise DataError(
            f"a DataLoader worker died ({first}): set num_workers=0 to see its own error."
        ) from error


def between_processes(error: Exception) -> bool:
    """Whether it comes from Python's own talk between processes: a worker died while it sent a batch."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and "multiprocessing" in last.tb_frame.f_code.co_filename


def waiting() -> bool:
    """Whether this thread waits for a loader's next batch: nothing is lost by stopping there."""
    return getattr(STATE, "waiting", False)


def patiently(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches, with :func:`waiting` true while one is awaited."""
    while True:
        STATE.waiting = True
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            STATE.waiting = False
        yield batch


def resumable(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """The loader, its workers started again every epoch: what persistent ones draw no checkpoint holds."""
    if not loader.persistent_workers:
        return loader
    warnings.warn(
        "persistent_workers=True is ignored: workers restart every epoch, as their state is not saved.",
        stacklevel=2,
    )
    fresh = copy.copy(loader)
    vars(fresh).update(persistent_workers=False, _iterator=None)  # torch forbids setting it by name
    return fresh
