"""Ctrl-C and SIGTERM: finish the step, save, then stop; at once where the run only waits for data."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType

from torchlift.train import Interrupted
from torchlift.train.workers import waiting

CAUGHT = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 3.0
"""Seconds a run that is to stop may wait for a batch that does not come."""


class Stop:
    """Whether the run is to stop. A second signal acts at once; so does the first, where a loader hangs."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.timer: threading.Timer | None = None
        self.ours = False
        """Whether the signal on its way is our own reminder."""
        self.sending = threading.Lock()
        self.ended = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal, in the main thread."""
        del frame
        if self.ours:
            self.ours = False
            if waiting():
                raise Interrupted(f"{signal.Signals(number).name} while waiting for data")
        elif self.requested.is_set():
            raise KeyboardInterrupt(f"second {signal.Signals(number).name}")
        self.requested.set()
        self.timer = threading.Timer(PATIENCE, self.remind, [number])
        self.timer.daemon = True
        self.timer.start()

    def remind(self, number: int) -> None:
        """Wake the main thread out of whatever it waits in."""
        with self.sending:
            if not self.ended:
                self.ours = True
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        """No more reminders: one that is on its way still finds this handler."""
        with self.sending:
            self.ended = True
        if self.timer is not None:
            self.timer.cancel()


@contextlib.contextmanager
def graceful(enabled: bool) -> Generator[Callable[[], bool]]:
    """Hand out "is the run to stop?"."""
    stop = Stop()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop.requested.is_set
        return
    before = {number: signal.getsignal(number) for number in CAUGHT}
    try:
        for number in CAUGHT:
            signal.signal(number, stop)
        yield stop.requested.is_set
    finally:
        stop.end()
        for number, handler in before.items():
            signal.signal(number, handler)
