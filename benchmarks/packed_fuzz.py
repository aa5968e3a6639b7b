"""Hostile packed files, each batch in a process with little memory, loaded and called.

    nice -n 19 python benchmarks/packed_fuzz.py --mutated 100000 --composed 20000

Mutated: damaged, or changed inside and sealed again. Composed: any permitted module under any other, any
argument at any value. Counts go to ``--out`` after every batch; a run that was stopped goes on where it was.
A crash, a hang (more than two seconds of the processor for one file), a load of a damaged file, memory
beyond the limit, a socket or a write outside is counted by name and makes the exit code 1. Seeds repeat a
case. An audit hook notes every socket, process and file opened for writing; glibc's checking allocator, where
there is one, aborts on a block that was written past its end.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
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
SLACK = 16 * 2**20
"""Memory beside the limit that torch and Python take by themselves when much is tried."""
MEMORY = 8 * 2**30
SECONDS = 2
"""Of the processor, for one file: a busy machine is no hang."""
BATCH = 500
CHECKING = ("libc_malloc_debug.so.0", "3")
"""The allocator that finds writes past a block, and how it is told to abort on one."""
TOUCHES = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod",
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "shutil.rmtree",
)  # fmt: skip


def say(where: Path, value: object) -> None:
    """Replace a small file."""
    where.write_text(json.dumps(value))


def watch(own: Path) -> list[str]:
    """Everything this process does to the world from now on, but for files in its own folder."""
    seen = list[str]()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        written = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        written = written and arguments[0] != "/proc/self/clear_refs"
        if (
            (written and not str(arguments[0]).startswith(str(own)))
            or event in TOUCHES
            or event.startswith("socket")
        ):
            seen.append(f"{event} {arguments[0] if arguments else ''}"[:200])

    sys.addaudithook(hook)
    return seen


def checking() -> bool:
    """Whether the allocator checks; starts again with one that does where there is one."""
    library, level = CHECKING
    if os.environ.get("MALLOC_CHECK_") == level:
        return library in os.environ.get("LD_PRELOAD", "")
    with contextlib.suppress(OSError):
        ctypes.CDLL(library)
        os.environ |= {"MALLOC_CHECK_": level, "LD_PRELOAD": library}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return False


def try_files(one: Callable[[int, int], str], seeds: range, note: Path) -> dict[str, object]:
    """Load and call files; what happened, and the most memory that one of them took."""
    from packed_mutations import GROWN

    counts, slowest, GROWN[0] = collections.Counter[str](), 0.0, 0
    for seed in seeds:
        say(note, seed)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        counts[one(seed, LIMIT)] += 1
        slowest = max(slowest, SECONDS - signal.getitimer(signal.ITIMER_PROF)[0])
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"counts": counts, "grown": GROWN[0], "slowest": slowest}


def apart(work: Callable[[Path], dict[str, object]]) -> dict[str, Any]:
    """The work in a process of its own with little memory; how it ended if not well."""
    with tempfile.TemporaryDirectory() as folder:
        note, result = Path(folder) / "seed", Path(folder) / "found"
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
                say(result, done | {"touched": seen})
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if result.exists():
            return json.loads(result.read_text())
        seed = json.loads(note.read_text())
        if os.WIFSIGNALED(status):
            kind = "hang" if os.WTERMSIG(status) == signal.SIGPROF else "crash"
            return {"how": kind, "seed": seed, "signal": os.WTERMSIG(status)}
        return {"how": "error", "seed": seed}


def fuzz(one: Callable[[int, int], str], total: int, state: dict[str, Any], save: Callable[[], None]) -> None:
    """All batches that are not done yet."""
    for key, value in {
        "files": 0,
        "counts": {},
        "bad": [],
        "touched": [],
        "grown": 0,
        "slowest": 0.0,
    }.items():
        state.setdefault(key, value)
    while state["files"] < total:
        seeds = range(state["files"], min(total, state["files"] + BATCH))
        ended = apart(lambda note, seeds=seeds: try_files(one, seeds, note))
        if "counts" in ended:
            state["counts"] = added(state["counts"], ended["counts"])
            state["grown"] = max(state["grown"], ended["grown"])
            state["slowest"] = max(state["slowest"], ended["slowest"])
            state["touched"] += ended["touched"]
        else:
            state["bad"].append(ended)
        state["files"] = seeds.stop if "counts" in ended else ended["seed"] + 1
        save()
        memory = f"memory +{state['grown'] / 2**20:.0f} MiB, slowest {state['slowest']:.1f} s"
        print(state["files"], state["counts"], memory, *state["bad"][-1:], flush=True)


def added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Counts together."""
    return dict(sorted((collections.Counter(first) + collections.Counter(second)).items()))


def bad(state: dict[str, Any]) -> bool:
    """Whether anything happened that must not."""
    wrong = any("wrong" in key for key in state["counts"])
    return bool(state["bad"] or state["touched"] or wrong or state["grown"] > LIMIT + SLACK)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutated", type=int, default=0)
    parser.add_argument("--composed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "packed_fuzz_files.json"
    )
    options = parser.parse_args()
    out: Path = options.out.absolute()
    checked = checking()
    from packed_mutations import Composer, Mutator

    mutator, composer = Mutator(), Composer()
    for seed in range(20):  # what torch reads at first use is read once, not by every child
        mutator(seed, LIMIT)
        composer(seed, LIMIT)
    states: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    states |= {"limit": LIMIT, "checking allocator": checked}
    for name, one, total in (("mutated", mutator, options.mutated), ("composed", composer, options.composed)):
        fuzz(one, total, states.setdefault(name, {}), lambda: say(out, states))
    sys.exit(any(bad(states[name]) for name in ("mutated", "composed")))


if __name__ == "__main__":
    main()
