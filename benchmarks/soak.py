"""Half an hour of random runs, killed at random and resumed: what differs, what is left behind, what grows.

    python benchmarks/soak.py [--minutes 30] [--seed 0]

A case is a model, a recipe, a kind of data and settings, drawn from the seed. One long-lived process runs
every case undisturbed (the reference) and is watched for memory, open files and threads. Then other lives
run the same case and are hurt: SIGKILL, SIGTERM or SIGINT at a random moment, or a fault of the disk at a
random operation (``tests/train/run/faults.py``), again and again, each followed by ``resume=True``, until one
comes to the end. It must have the reference's weights, history, cost and scores, bit for bit, pass ``doctor
--run``, pack and load as the same network, and leave no file and no process. A soak that was stopped goes on
to its minutes. Written to ``results/soak.json`` every minute.
"""

import argparse
import collections
import copy
import ctypes
import gc
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
import torch._dynamo  # torch loads it with the first optimizer: once, before the first life
from torch.utils.data import DataLoader, TensorDataset

import torchlift as tl
from cases import MODELS
from every_recipe import RECIPES
from torchlift import deploy, report  # noqa: F401  (loaded once, before the first life)
from torchlift.cli.folders import examine_folder
from train.run.faults import GONE, KINDS, RAISED, Disk, install, left, story

NAMES = [name for name in RECIPES if name != "a function"]
HARMS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", *KINDS)
PATIENCE = 300.0
"""Seconds after which a life hangs."""
Case = dict[str, Any]


def draw(seed: str) -> Case:
    """A case."""
    chance = random.Random(seed)
    return {
        "model": chance.choice(["mlp", "mlp", "conv", "lstm", "attention"]),
        "recipe": chance.choice(NAMES),
        "data": chance.choice(["tensors"] * 6 + ["loader"] * 2 + ["workers"]),
        "epochs": chance.choice([2, 3, 4]),
        "keep": chance.choice(["last", "best"]),
        "schedule": chance.choice(["constant", "cosine"]),
        "save_every": chance.choice([0.0, 0.0, 0.05]),
        "seed": chance.randrange(1000),
    }


def run(case: Case, out: Path, resume: bool) -> tl.Result:
    """The case, in this process."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(case["seed"])
        model, batch = MODELS[case["model"]]()
        x = torch.randn(48, *batch[0].shape[1:])
        data: Any = (x, (x.flatten(1).sum(1) > 0).long() + (x.flatten(1)[:, 0] > 0).long())
    train = data
    if case["data"] != "tensors":
        generator = torch.Generator().manual_seed(case["seed"])
        several = case["data"] == "workers"
        train = DataLoader(TensorDataset(*data), 16, True, num_workers=several, generator=generator)
    names = ("epochs", "keep", "schedule", "save_every", "seed")
    how = {name: case[name] for name in names} | {"batch_size": 16, "progress": False, "resume": resume}
    return tl.fit(model, train, data, recipe=RECIPES[case["recipe"]], out=out, **how)


def packs(result: tl.Result, path: Path) -> bool:
    """Whether the network packs and loads as itself."""
    deploy.save(result.model, path)
    again = deploy.load(path, into=copy.deepcopy(result.model))
    one, two = result.model.state_dict(), again.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def numbers() -> dict[str, float]:
    """What must not grow in this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return {
        "MiB": rss / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def steady(read: int, write: int) -> None:
    """The long-lived process: cases in, references out."""
    with os.fdopen(read) as requests, os.fdopen(write, "w") as answers:
        for line in requests:
            case, out = json.loads(line)
            started = time.monotonic()
            try:
                whole = packs(run(case, Path(out), False), Path(out).parent / "x.tl")
                how = "done" if whole else "packed: another network"
            except tl.TorchliftError as error:
                how = f"refused: {error}"
            answer = {"how": how, "seconds": time.monotonic() - started} | numbers()
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


class Steady:
    """The other end of it."""

    def __init__(self) -> None:
        ask, answer = os.pipe(), os.pipe()
        self.child = os.fork()
        if not self.child:
            os.close(ask[1])
            os.close(answer[0])
            try:
                steady(ask[0], answer[1])
            finally:
                os._exit(1)
        os.close(ask[0])
        os.close(answer[1])
        self.asks, self.answers = os.fdopen(ask[1], "w"), os.fdopen(answer[0])

    def run(self, case: Case, out: Path) -> dict[str, Any]:
        """The reference of a case; raises where the process is gone."""
        self.asks.write(json.dumps([case, str(out)]) + "\n")
        self.asks.flush()
        return json.loads(self.answers.readline() or '{"how": "crash"}')


def born(case: Case, out: Path, disk: Disk | None) -> int:
    """A life of the case, on a disk that may fail."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if disk is not None:
            install(disk, out.parent)
        run(case, out, resume=True)
        code = 0
    except (tl.TorchliftError, KeyboardInterrupt) as error:
        code = RAISED if "\n" not in str(error) else 1
    finally:
        os._exit(code)


def lived(child: int, harm: str, after: float) -> str:
    """How a life ended: ``done``, ``harmed``, or what should not be."""
    started, sent = time.monotonic(), False
    while time.monotonic() - started < PATIENCE:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            expected = (GONE, RAISED, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
            return "done" if code == 0 else "harmed" if harm and code in expected else f"ended with {code}"
        if harm.startswith("SIG") and not sent and time.monotonic() - started > after:
            os.kill(child, signal.Signals[harm])
            sent = True
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hang"


def orphans(ours: set[int]) -> list[int]:
    """Processes left by lives that are gone: a dead parent's come to this process; ended ones are buried."""
    deadline = time.monotonic() + 15
    while True:
        with_children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        children = [pid for pid in map(int, with_children) if pid not in ours]
        children = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not children or time.monotonic() > deadline:
            return children
        time.sleep(0.05)


def hurt(case: Case, folder: Path, chance: random.Random, length: float, state: dict[str, Any]) -> list[str]:
    """Lives of one case until one comes to its end; what was wrong."""
    out, wrong = folder / "hurt" / "run", list[str]()
    harms = chance.choice([1, 2, 3, 5])
    for number in range(harms + 1):
        harm = chance.choice(HARMS) if number < harms else ""
        disk = Disk(harm, chance.randrange(1, 60)) if harm in KINDS else None
        ended = lived(born(case, out, disk), harm, chance.uniform(0.0, 1.2 * length))
        if harm:
            state["harms"][harm] += 1
        if ended not in ("done", "harmed"):
            wrong.append(f"life {number} under {harm or 'nothing'}: {ended}")
    return wrong


def judged(folder: Path) -> list[str]:
    """What is wrong with the run that was hurt, beside its reference."""
    out, faults = folder / "hurt" / "run", list[str]()
    if not (out / "result.json").exists():
        return ["it has no result"]
    if story("fit", out) != story("fit", folder / "reference"):
        faults.append("another result")
    if left(out):
        faults.append(f"left {[path.name for path in left(out)]}")
    looks = [look for look in examine_folder(out) if look.state not in ("ok", "missing")]
    return faults + [f"doctor: {look.name}: {look.detail}" for look in looks]


def round_of(number: int, seed: int, root: Path, watched: Steady, state: dict[str, Any]) -> None:
    """One case: its reference, its hurt lives, its verdict."""
    case, folder = draw(f"{seed} {number}"), root / str(number)
    folder.mkdir()
    reference = watched.run(case, folder / "reference")
    state["cases"] += 1
    how = reference["how"]
    if how == "crash":
        state["wrong"].append({"case": number, **case, "what": "the long-lived process is gone"})
        raise SystemExit(1)
    state["growth"].append({name: reference[name] for name in ("MiB", "files", "threads")})
    if how.startswith("refused"):
        state["refused"][how.partition(": ")[2][:60]] += 1
    else:
        state["recipes"][case["recipe"]] += 1
        wrong = [] if how == "done" else [how]
        wrong += hurt(case, folder, random.Random(f"harm {seed} {number}"), reference["seconds"], state)
        lost = orphans({watched.child})
        wrong += judged(folder) + [f"left process {pid}" for pid in lost]
        state["wrong"] += [{"case": number, **case, "what": what} for what in wrong]
    shutil.rmtree(folder)
    if os.listdir(root):
        state["wrong"].append({"case": number, "what": f"left {os.listdir(root)}"})


def figures(state: dict[str, Any], seed: int, started: float) -> dict[str, Any]:
    """The figures."""
    growth = state["growth"]
    quarter = max(1, len(growth) // 4)
    spans = {"second quarter": growth[quarter : 2 * quarter], "last quarter": growth[-quarter:]}
    medians = {
        span: {name: round(statistics.median(row[name] for row in rows), 1) for name in growth[0]}
        for span, rows in spans.items()
        if rows
    }
    minutes = round((time.monotonic() - started) / 60, 1)
    return {
        "seed": seed,
        "minutes": round(state["minutes"] + minutes, 1),
        "cases": state["cases"],
        "compared": sum(state["recipes"].values()),
        "harms": dict(sorted(state["harms"].items())),
        "recipes": dict(sorted(state["recipes"].items())),
        "refused": dict(state["refused"]),
        "wrong": state["wrong"],
        "long-lived processes": [
            *state["long-lived processes"],
            {"minutes": minutes, "fits": len(growth), "medians": medians},
        ],
        "torch": torch.__version__,
    }


def main() -> int:
    """Soak."""
    parser = argparse.ArgumentParser(description="random runs, killed and resumed, for a while")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "soak.json")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of our lives become ours
    started, shown = time.monotonic(), 0.0
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    before = before if before.get("seed") == options.seed else {}
    state: dict[str, Any] = {"cases": 0, "minutes": 0.0, "wrong": [], "long-lived processes": []}
    state = {name: before.get(name, value) for name, value in state.items()} | {"growth": []}
    state |= {name: collections.Counter(before.get(name, {})) for name in ("harms", "recipes", "refused")}
    if state["minutes"] >= options.minutes:
        return int(bool(state["wrong"]))
    watched = Steady()
    with tempfile.TemporaryDirectory() as root:
        while time.monotonic() - started < 60 * (options.minutes - state["minutes"]):
            round_of(state["cases"], options.seed, Path(root), watched, state)
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                options.out.write_text(json.dumps(figures(state, options.seed, started), indent=1) + "\n")
                print(state["cases"], dict(state["harms"]), state["wrong"][-3:], flush=True)
    record = figures(state, options.seed, started)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    return int(bool(state["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
