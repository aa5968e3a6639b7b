"""Hostile packed files and hostile arguments, each in a process with little memory.

    python benchmarks/packed_fuzz.py --files 145000      files, 70 % changed inside and sealed anew
    python benchmarks/packed_fuzz.py --operations 100    arguments for every operation of the allow-list

Counts go to ``--out`` after every batch; a run that was stopped goes on where it was. A crash, a hang, a load
of a damaged file, memory beyond the limit or a write outside is counted by name and makes the exit code 1.
Seeds repeat a case. Writes outside: an audit hook notes every file opened for writing, removed or renamed,
every process and every connection; arguments lie between sentinels that must not change; and the whole runs
under glibc's checking allocator where there is one, which aborts on a block that was written past its end.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import random
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

LIMIT = 64 * 2**20
MEMORY = 8 * 2**30
SECONDS = 20
"""Of the processor: a busy machine is no hang."""
BATCH = 1000


CHECKING = ("libc_malloc_debug.so.0", "3")
"""The allocator that finds writes past a block, and how it is told to abort on one."""
TOUCHES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "os.chmod",
)
TOUCHES += (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "shutil.rmtree",
)


def say(where: Path, value: object) -> None:
    """Replace a small file."""
    where.write_text(json.dumps(value))


def watch(own: Path) -> list[str]:
    """Everything this process does to the world from now on, but for files in its own folder."""
    seen = list[str]()

    def hook(event: str, given: tuple[object, ...]) -> None:
        written = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if (written and not str(given[0]).startswith(str(own))) or event in TOUCHES:
            seen.append(f"{event} {given[0]}"[:200])

    sys.addaudithook(hook)
    return seen


def checking() -> bool:
    """Whether the allocator checks; begins anew with one that does where there is one."""
    library, level = CHECKING
    if os.environ.get("MALLOC_CHECK_") == level:
        return library in os.environ.get("LD_PRELOAD", "")
    with contextlib.suppress(OSError):
        ctypes.CDLL(library)
        os.environ |= {"MALLOC_CHECK_": level, "LD_PRELOAD": library}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return False


def try_files(mutator: Any, seeds: range, note: Path) -> dict[str, object]:
    """Mutate and load files; what happened, and how much memory was needed beyond what loading took
    before."""
    counts = collections.Counter[str]()
    before = peak()
    for seed in seeds:
        say(note, seed)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        counts[mutator.labeled(seed, LIMIT)] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"counts": counts, "grown": peak() - before}


def older() -> tuple[bytes, ...]:
    """Files of the first version of the format, and of earlier coders."""
    folder = Path(__file__).parent.parent / "tests" / "deploy" / "fixtures"
    return tuple(path.read_bytes() for path in sorted(folder.glob("v*.tl")))


def peak() -> int:
    """The most memory this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def try_operation(name: str, tries: int, note: Path) -> dict[str, object]:
    """Call one operation with hostile arguments; what happened."""
    from packed_arguments import attempt

    counts = collections.Counter()
    for seed in range(tries):
        say(note, seed)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        counts[attempt(name, random.Random(f"{name} {seed}"))] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"counts": counts}


def apart(work: Callable[[Path], dict[str, object]]) -> dict[str, object]:
    """The work in a process of its own with little memory; how it ended if not well."""
    with tempfile.TemporaryDirectory() as folder:
        note, found = Path(folder) / "seed", Path(folder) / "found"
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.chdir(folder)
            warnings.simplefilter("ignore")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                seen = watch(Path(folder))
                done = work(note)
                say(found, done | {"writes": seen})
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if found.exists():
            return json.loads(found.read_text())
        seed = json.loads(note.read_text())
        if os.WIFSIGNALED(status):
            kind = "hang" if os.WTERMSIG(status) == signal.SIGPROF else "crash"
            return {"how": kind, "seed": seed, "signal": os.WTERMSIG(status)}
        return {"how": "error", "seed": seed}


def fuzz_files(total: int, out: Path, checked: bool) -> dict[str, Any]:
    """All batches that are not done yet."""
    from packed_mutations import Mutator

    mutator = Mutator(older())
    mutator.use_all(LIMIT)  # what torch reads at first use is read once, not by every child
    state = json.loads(out.read_text()) if out.exists() else {}
    state = {"files": 0, "counts": {}, "bad": [], "writes": [], "grown": 0, "limit": LIMIT, **state}
    state["checking allocator"] = checked
    while state["files"] < total:
        seeds = range(state["files"], min(total, state["files"] + BATCH))
        ended = apart(lambda note, seeds=seeds: try_files(mutator, seeds, note))
        if "counts" in ended:
            state["counts"] = added(state["counts"], ended["counts"])
            state["grown"] = max(state["grown"], ended["grown"])
            state["writes"] += ended["writes"]
        else:
            state["bad"].append(ended)
        state["files"] = seeds.stop if "counts" in ended else ended["seed"] + 1
        say(out, state)
        memory = f"memory +{state['grown'] / 2**20:.0f} MiB"
        print(state["files"], state["counts"], memory, *state["bad"][-1:], flush=True)
    return state


def fuzz_operations(tries: int, out: Path, only: str | None, checked: bool) -> dict[str, Any]:
    """Every operation by itself."""
    from packed_arguments import attempt

    attempt(
        "aten.bmm.default", random.Random(0)
    )  # what torch reads at first use is read once, not by every child
    from torchlift.packed.operations import ALLOWED, ARITHMETIC

    new = {"tries": tries, "counts": {}, "bad": [], "writes": [], "done": []}
    state = json.loads(out.read_text()) if out.exists() else {}
    state = state if state.get("tries") == tries else new
    state["checking allocator"] = checked
    for name in [*sorted(ALLOWED), *(f"operator.{name}" for name in ARITHMETIC)]:
        if name in state["done"] or (only and only not in name):
            continue
        ended = apart(lambda note, name=name: try_operation(name, tries, note))
        if "counts" in ended:
            state["counts"] = added(state["counts"], ended["counts"])
            state["writes"] += ended["writes"]
        else:
            state["bad"].append({"name": name, **ended})
        print(name, ended, flush=True)
        state["done"].append(name)
        say(out, state)
    return state


def added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Counts together."""
    return dict(sorted((collections.Counter(first) + collections.Counter(second)).items()))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--operations", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    checked, results = checking(), Path(__file__).parent / "results"
    bad: list[object] = []
    if given.files:
        out = given.out or results / "packed_fuzz_files.json"
        state = fuzz_files(given.files, out.absolute(), checked)
        wrong = [key for key in state["counts"] if "wrong" in key]
        bad += [*state["bad"], *state["writes"], *wrong, *(["memory"] if state["grown"] > LIMIT else [])]
    if given.operations:
        out = given.out or results / "packed_fuzz_operations.json"
        state = fuzz_operations(given.operations, out.absolute(), given.only, checked)
        wrong = [key for key in state["counts"] if "wrong" in key]
        bad += [*state["bad"], *state["writes"], *wrong]
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
