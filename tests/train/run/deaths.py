"""A loader's worker, or one of two processes, dies: ``python deaths.py FOLDER VERBS WHO SAMPLES SEED``.

VERBS as in ``faults.py``; WHO: ``worker`` (gone at the n-th batch it should fetch) or ``rank`` (the second
of two processes is gone before the n-th step of the run). The life it happens in must end by itself, in one
line; the life after it, with ``resume=True``, as if nothing had happened, with nothing left over. SAMPLES of
all n, 0 for each. Prints as ``faults.py`` does.
"""

import mmap
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  (loaded once, before the first life)
import torch
from torch import distributed
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

sys.path.insert(0, str(Path(__file__).parents[2]))

import torchlift as tl
from train.run.faults import DATA, GONE, RAISED, VERBS, left, print_wrong, story
from train.run.runs import data

PATIENCE = 120.0
"""Seconds after which what is left of a life hangs."""


class Counter:
    """A number that all processes of a life share; the one that makes it ``fatal`` is gone."""

    def __init__(self, fatal: int) -> None:
        self.fatal, self.shared = fatal, mmap.mmap(-1, 8)

    def __call__(self) -> None:
        count = self.value + 1
        self.shared[:] = count.to_bytes(8, "little")
        if count == self.fatal:
            os._exit(GONE)

    @property
    def value(self) -> int:
        return int.from_bytes(self.shared[:], "little")


def counted(owner: type, name: str, counter: Counter) -> None:
    """Count calls of a method."""
    real = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        counter()
        return real(*arguments)

    setattr(owner, name, call)


def worker(verb: str, out: Path, counter: Counter, **how: bool) -> list[int]:
    """Exit codes of a life that reads through a worker."""

    def live() -> None:
        counted(_MapDatasetFetcher, "fetch", counter)
        samples = TensorDataset(*(DATA if verb == "tune" else data()))
        VERBS[verb](out, DataLoader(samples, 32, shuffle=True, num_workers=1), **how)

    return ended([forked(live)])


def rank(verb: str, out: Path, counter: Counter, **how: bool) -> list[int]:
    """Exit codes of the two processes of a life; the second counts its steps."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def live(number: int) -> None:
        variables = {
            "RANK": number,
            "LOCAL_RANK": number,
            "WORLD_SIZE": 2,
            "LOCAL_WORLD_SIZE": 2,
            "GROUP_RANK": 0,
        }
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "x"}
        os.environ.update({name: str(value) for name, value in variables.items()})
        if number:
            register_optimizer_step_pre_hook(lambda *_: counter())
        VERBS[verb](out, **how)
        distributed.destroy_process_group()

    return ended([forked(lambda: live(0)), forked(lambda: live(1))])


def forked(work: Callable[[], None]) -> int:
    """A process that works and says how it ended by its exit code."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        work()
        code = 0
    except tl.TorchliftError as error:
        code = RAISED if "\n" not in str(error) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(children: list[int]) -> list[int]:
    """Their exit codes; what does not end in time is killed, and its code tells so."""
    codes, deadline = dict.fromkeys(children, 1), time.monotonic() + PATIENCE
    alive = list(children)
    while alive:
        for child in list(alive):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
                alive.remove(child)
            elif time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return list(codes.values())


WHO = {"worker": worker, "rank": rank}


def deaths(verb: str, who: str, root: Path, samples: int, seed: int) -> Iterator[str]:
    """Try them; a sentence for each that made a difference. The last line counts."""
    counter = Counter(0)
    out = root / "reference" / "run"
    if verb == "overwrite":
        WHO[who]("fit", out, Counter(0))
    codes = WHO[who](verb, out, counter)
    if who == "rank" and verb in ("auto", "tune"):  # a search has workers of its own
        yield "0 faults: an error" if codes == [RAISED] * 2 and not out.exists() else f"it ends with {codes}"
        return
    assert not any(codes), f"without a death it ends with {codes}"
    total, expected = counter.value, story(verb, out)
    fatal = random.Random(seed).sample(range(1, total + 1), min(samples or total, total))
    for number in sorted(fatal):
        wrong = trial(verb, who, root / f"{who}{number}", number, expected)
        if wrong:
            yield f"{verb}, {who} dies at {number}: {wrong}"
    yield f"{len(fatal)} faults at {total} {'batches' if who == 'worker' else 'steps'}"


def trial(verb: str, who: str, folder: Path, fatal: int, expected: Any) -> str:
    """One death and the life after it; what was wrong, if anything."""
    out, live = folder / "run", WHO[who]
    if verb == "overwrite":
        live("fit", out, Counter(0))
    first = live(verb, out, Counter(fatal))
    said = first == ([RAISED] if who == "worker" else [RAISED, GONE])
    second = live(verb, out, Counter(0), resume=True)
    if verb == "overwrite" and RAISED in second:  # it had not begun: the old run is still there
        second = live(verb, out, Counter(0), overwrite=True)
    if not said or any(second):
        return f"exit codes {first}, then {second}"
    actual, rest = story(verb, out), [path.name for path in left(out)]
    shutil.rmtree(folder)
    return "another result" if actual != expected else f"left {rest}" if rest else ""


def main(root: Path, verbs: str, who: str, samples: int, seed: int) -> int:
    return print_wrong(verbs, lambda verb: deaths(verb, who, root / verb, samples, seed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
