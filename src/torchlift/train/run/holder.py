"""Who holds a folder: a process, told from a later one of the same number by the boot and its start time."""

import dataclasses
import json
import os
import platform
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class Holder:
    """A process on a machine; boot and start time are empty where the system does not tell them."""

    pid: int
    host: str
    boot: str
    started: str

    def lives(self) -> bool:
        """Whether the process is still there; one of another machine is taken to be."""
        return self.host != platform.node() or self == holder_of(self.pid)


def holder_of(pid: int) -> Holder | None:
    """The process of this number, now; None where there is none."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # there, and another user's
    except (OSError, OverflowError):
        return None
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    return Holder(pid, platform.node(), boot, start_time(pid))


def start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks since the boot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def me() -> Holder:
    """This process."""
    holder = holder_of(os.getpid())
    assert holder is not None, "this process exists"
    return holder


def read_holder(path: Path) -> Holder | None:
    """Who a lock file names; None where there is none, or it says nothing."""
    try:
        return parse_holder(path.read_bytes())
    except OSError:
        return None


def parse_holder(text: bytes) -> Holder | None:
    """The process that the text of a lock file names; None if the text is not ours."""
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
