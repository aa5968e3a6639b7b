"""Where errors become one line and an exit code."""

import contextlib
import os
import re
import shlex
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence

from cyclopts import App, CycloptsError

BAD_INPUT, FAILED = 2, 1
FLAGS = {"resume=True": "--resume", "overwrite=True": "--overwrite", "join=True": "--join"}


def guarded(app: App, arguments: Sequence[str]) -> int:
    """Run the program; whatever goes wrong is one line on stderr, with a traceback only when debugging."""
    debug = "--debug" in arguments or os.environ.get("TORCHLIFT_DEBUG", "0") not in ("", "0")
    with last_signal() as received:
        try:
            return app(arguments, exit_on_error=False, print_error=False) or 0
        except CycloptsError as error:
            return complain(flag_line(str(error)), BAD_INPUT)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, KeyboardInterrupt):
                return complain(stopped(error, arguments), 128 + (received() or signal.SIGINT))
            return complain(*judged(error))


def complain(message: str, code: int) -> int:
    """Say it, and hand the exit code back."""
    print(f"torchlift: {message}", file=sys.stderr)
    return code


def judged(error: Exception) -> tuple[str, int]:
    """The line and the exit code for an error."""
    if is_a(error, "torchlift.errors", "DivergedError"):
        return flag_line(str(error)), FAILED
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return flag_line(f"{error.filename}: {reason}" if error.filename else reason), BAD_INPUT
    if isinstance(error, ValueError) and str(error):
        return flag_line(str(error)), BAD_INPUT
    if isinstance(error, ModuleNotFoundError):
        return flag_line(f"{error}: install it, or see: torchlift doctor"), BAD_INPUT
    return flag_line(f"{type(error).__name__}: {error} (--debug shows where)"), FAILED


def stopped(error: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """What to say after a signal: the command that goes on, where the work was saved."""
    if is_a(error, "torchlift.train.durable", "Interrupted"):
        saved = "saved" if getattr(error, "saved", True) else "stopped before the first checkpoint"
        return f"{saved}; resume with: {resume_command(arguments)}"
    return "interrupted"


def resume_command(arguments: Sequence[str]) -> str:
    """The same command line, going on where it stopped."""
    kept = [argument for argument in arguments if argument not in ("--overwrite", "--resume")]
    return shlex.join(["torchlift", *kept, "--resume"])


def is_a(error: BaseException, module: str, name: str) -> bool:
    """Whether an error is of a class whose module, which needs torch, may never have been imported."""
    home = sys.modules.get(module)
    return home is not None and isinstance(error, getattr(home, name))


def flag_line(text: str) -> str:
    """The text on one line, speaking of flags where the library speaks of arguments."""
    for argument, flag in FLAGS.items():
        text = text.replace(argument, flag)
    return re.sub(r"\s+", " ", text).strip()


@contextlib.contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that what must be cleaned up is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def last_signal() -> Generator[Callable[[], int]]:
    """Hand out the number of the last signal that arrived, 0 if none did, whoever handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def read() -> int:
            with contextlib.suppress(BlockingIOError):
                return reader.recv(4096)[-1]
            return 0

        try:
            yield read
        finally:
            signal.set_wakeup_fd(before)
