"""What ``doctor --run`` checks: what a folder holds, whether it is whole, whose it is, what to do."""

import json
from collections.abc import Iterator
from pathlib import Path

from torchlift.cli.health import Check
from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import load_checkpoint
from torchlift.train.history import read_history
from torchlift.train.run.folder import ASIDE, run_folders
from torchlift.train.run.holder import read_holder
from torchlift.train.run.leftovers import OWNED, leftovers
from torchlift.train.run.lock import NAME as LOCK
from torchlift.train.run.record import NAME, RunRecord, read_record
from torchlift.train.store import FINAL, STEPS, Store

ANOTHER = "choose another folder"
ENDS = {"fit": "result.json", "comparison": "comparison.json", "search": "tuning.json"}


def examine_folder(folder: Path) -> Iterator[Check]:
    """All checks of one folder, and of the runs a comparison is made of."""
    yield from lock_checks(folder)
    if any(folder.glob(f"{ASIDE}*")):
        yield Check("overwrite", "warning", "was interrupted: the old run is gone", "--resume starts again")
    try:
        record = read_record(folder)
    except CheckpointError as error:
        yield Check("record", "error", str(error), ANOTHER)
        return
    if record is None:
        yield from no_run(folder)
        return
    kind = record["kind"]
    machine = record.get("machine", {})
    detail = f"{kind} {record['id']}, torchlift {record.get('torchlift')}, torch {machine.get('torch')}"
    yield Check("record", "ok", detail)
    if kind == "fit":
        yield from checkpoint_checks(folder, record)
    for piece in run_folders(folder, record):
        bad = [check for check in examine_folder(piece) if check.state not in ("ok", "missing")]
        yield from (
            Check(piece.name, check.state, f"{check.name}: {check.detail}", check.fix) for check in bad
        )
    left = leftovers(folder, kind)
    if left:
        names = ", ".join(path.name for path in left[:4])
        yield Check("leftovers", "warning", f"{len(left)} of a crash ({names})", "--resume removes them")
    yield end_check(folder, ENDS[kind])


def lock_checks(folder: Path) -> Iterator[Check]:
    """Who is at work in the folder."""
    path = folder / LOCK
    if not path.exists():
        return
    holder = read_holder(path)
    if holder is None:
        yield Check("lock", "warning", "names no process: left by a crash", "--resume takes it over")
    elif holder.lives():
        yield Check("lock", "warning", f"locked by process {holder.pid} on {holder.host}", "wait for its end")
    else:
        yield Check("lock", "ok", f"left by process {holder.pid}, which is gone; the next run takes it over")


def no_run(folder: Path) -> Iterator[Check]:
    """A folder without a record: empty, or somebody else's."""
    if not folder.is_dir():
        yield Check("record", "missing", f"{folder} is not there: a run would make it")
        return
    strangers = sorted({name for names in OWNED.values() for name in names if (folder / name).exists()})
    if strangers:
        detail = f"no {NAME}, but {', '.join(strangers)}: not written by a run here, and never touched"
        yield Check("record", "error", detail, ANOTHER)
    else:
        yield Check("record", "missing", "no run here")


def checkpoint_checks(folder: Path, record: RunRecord) -> Iterator[Check]:
    """Every checkpoint, read whole; the history beside them."""
    store = Store(folder, record["id"])
    checkpoints = sorted([*folder.glob(f"fits/**/{FINAL}"), *folder.glob(f"fits/**/{STEPS}")])
    for path in checkpoints:
        try:
            store.read(path)
        except CheckpointError as error:
            yield Check("checkpoint", "error", str(error), f"rm {path}")
    ended = sum(path.name == FINAL for path in checkpoints)
    if checkpoints:
        yield Check("fits", "ok", f"{ended} finished, {len(checkpoints) - ended} checkpoints on the way")
    else:
        yield Check("fits", "missing", "no checkpoint yet", "--resume starts from the beginning")
    history = folder / "history.jsonl"
    if history.exists():
        yield history_check(history)
    weights = folder / "model.safetensors"
    if weights.exists():
        try:
            load_checkpoint(weights)
        except CheckpointError as error:
            yield Check("model", "error", str(error), "--resume writes it again")


def history_check(path: Path) -> Check:
    """Whether every row is whole; a run goes on behind the last one where the next was cut by a crash."""
    try:
        rows = len(read_history(path))
    except CheckpointError as error:
        return Check("history", "error", str(error), "put it back, or --overwrite starts again")
    if path.read_bytes()[-1:] not in (b"", b"\n"):
        return Check("history", "warning", f"{rows} rows, the next one cut", "--resume removes it")
    return Check("history", "ok", f"{rows} rows")


def end_check(folder: Path, name: str) -> Check:
    """Whether the run came to its end."""
    path = folder / name
    try:
        json.loads(path.read_text())
    except FileNotFoundError:
        return Check("end", "missing", "not finished", "--resume goes on")
    except (OSError, ValueError) as error:
        return Check("end", "error", f"{name} is damaged ({error})", "--resume writes it again")
    return Check("end", "ok", f"finished: {name} is whole")
