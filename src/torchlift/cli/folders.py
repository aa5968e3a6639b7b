"""What ``doctor --run`` checks: what a folder holds, whether it is whole, whose it is, what to do."""

import json
from collections.abc import Iterator
from pathlib import Path

from torchlift.cli.health import HealthCheck
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


def examine_folder(folder: Path) -> Iterator[HealthCheck]:
    """All checks of one folder, and of the runs a comparison is made of."""
    yield from lock_checks(folder)
    if any(folder.glob(f"{ASIDE}*")):
        yield HealthCheck(
            "overwrite", "warning", "was interrupted: the old run is gone", "--resume starts again"
        )
    try:
        record = read_record(folder)
    except CheckpointError as error:
        yield HealthCheck("record", "error", str(error), ANOTHER)
        return
    if record is None:
        yield from no_run(folder)
        return
    kind = record["kind"]
    machine = record.get("machine", {})
    detail = f"{kind} {record['id']}, torchlift {record.get('torchlift')}, torch {machine.get('torch')}"
    yield HealthCheck("record", "ok", detail)
    if kind == "fit":
        yield from checkpoint_checks(folder, record)
    for piece in run_folders(folder, record):
        bad = [check for check in examine_folder(piece) if check.state not in ("ok", "missing")]
        yield from (
            HealthCheck(piece.name, check.state, f"{check.name}: {check.detail}", check.fix) for check in bad
        )
    left = leftovers(folder, kind)
    if left:
        names = ", ".join(path.name for path in left[:4])
        yield HealthCheck(
            "leftovers", "warning", f"{len(left)} of a crash ({names})", "--resume removes them"
        )
    yield end_check(folder, ENDS[kind])


def lock_checks(folder: Path) -> Iterator[HealthCheck]:
    """Who is at work in the folder."""
    path = folder / LOCK
    if not path.exists():
        return
    holder = read_holder(path)
    if holder is None:
        yield HealthCheck("lock", "warning", "names no process: left by a crash", "--resume takes it over")
    elif holder.lives():
        yield HealthCheck(
            "lock", "warning", f"locked by process {holder.pid} on {holder.host}", "wait for its end"
        )
    else:
        yield HealthCheck(
            "lock", "ok", f"left by process {holder.pid}, which is gone; the next run takes it over"
        )


def no_run(folder: Path) -> Iterator[HealthCheck]:
    """A folder without a record: empty, or somebody else's."""
    if not folder.is_dir():
        yield HealthCheck("record", "missing", f"{folder} is not there: a run would make it")
        return
    strangers = sorted({name for names in OWNED.values() for name in names if (folder / name).exists()})
    if strangers:
        detail = f"no {NAME}, but {', '.join(strangers)}: not written by a run here, and never touched"
        yield HealthCheck("record", "error", detail, ANOTHER)
    else:
        yield HealthCheck("record", "missing", "no run here")


def checkpoint_checks(folder: Path, record: RunRecord) -> Iterator[HealthCheck]:
    """Every checkpoint, read whole; the history beside them."""
    store = Store(folder, record["id"])
    checkpoints = sorted([*folder.glob(f"fits/**/{FINAL}"), *folder.glob(f"fits/**/{STEPS}")])
    for path in checkpoints:
        try:
            store.read(path)
        except CheckpointError as error:
            yield HealthCheck("checkpoint", "error", str(error), f"rm {path}")
    ended = sum(path.name == FINAL for path in checkpoints)
    if checkpoints:
        yield HealthCheck(
            "fits", "ok", f"{ended} finished, {len(checkpoints) - ended} checkpoints on the way"
        )
    else:
        yield HealthCheck("fits", "missing", "no checkpoint yet", "--resume starts from the beginning")
    history = folder / "history.jsonl"
    if history.exists():
        yield history_check(history)
    weights = folder / "model.safetensors"
    if weights.exists():
        try:
            load_checkpoint(weights)
        except CheckpointError as error:
            yield HealthCheck("model", "error", str(error), "--resume writes it again")


def history_check(path: Path) -> HealthCheck:
    """Whether every row is whole; a run goes on behind the last one where the next was cut by a crash."""
    try:
        rows = len(read_history(path))
    except CheckpointError as error:
        return HealthCheck("history", "error", str(error), "put it back, or --overwrite starts again")
    if path.read_bytes()[-1:] not in (b"", b"\n"):
        return HealthCheck("history", "warning", f"{rows} rows, the next one cut", "--resume removes it")
    return HealthCheck("history", "ok", f"{rows} rows")


def end_check(folder: Path, name: str) -> HealthCheck:
    """Whether the run came to its end."""
    path = folder / name
    try:
        json.loads(path.read_text())
    except FileNotFoundError:
        return HealthCheck("end", "missing", "not finished", "--resume goes on")
    except (OSError, ValueError) as error:
        return HealthCheck("end", "error", f"{name} is damaged ({error})", "--resume writes it again")
    return HealthCheck("end", "ok", f"finished: {name} is whole")
