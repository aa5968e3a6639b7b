"""Ctrl-C and SIGTERM: finish the step, save, then stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def graceful(enabled: bool) -> Generator[Callable[[], bool]]:
    """Hand out "was a stop asked for?"; a second signal acts at once."""
    asked = threading.Event()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in CAUGHT}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if asked.is_set():
            raise KeyboardInterrupt(f"second {signal.Signals(number).name}")
        asked.set()

    try:
        for number in CAUGHT:
            signal.signal(number, ask)
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
