"""A run's folder: whose it is; two runs in one place are an error, and what is not ours is never touched.

What torchlift may write, move or remove in a folder is listed by kind in :data:`OWNED`, and is ours only
beside a ``run.toml`` with our marker. ``overwrite`` moves the old run into ``.old-<id>`` first: from the
moment that folder is there the old run is gone, and whoever opens the place next finishes the move.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from torchlift import files
from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import write_durable
from torchlift.train.engines import Engine
from torchlift.train.run.leftovers import OWNED, remove, sweep
from torchlift.train.run.lock import Lock, claim, claims
from torchlift.train.run.record import NAME, RunRecord, check_same_run, headed, read_record, run_id, to_toml
from torchlift.train.store import FINAL, STEPS

ASIDE = ".old-"


def open_run(
    folder: Path, kind: str, describe: Callable[[], RunRecord], *, resume: bool, overwrite: bool
) -> Lock:
    """Start in an empty folder, or go on in one whose run has the same settings."""
    lock = claim(folder)
    finish_overwrite(folder)
    old = read_record(folder)
    if old is None:
        sweep(folder, NAME)
        check_no_other_files(folder, kind)
        write_new_record(folder, kind, describe())
        return lock
    if old["kind"] != kind:
        raise CheckpointError(f"{folder} holds a {old['kind']}, not a {kind}: choose another folder.")
    if overwrite:
        record = describe()
        put_aside(folder, old)
        write_new_record(folder, kind, record)
        finish_overwrite(folder)
        return lock
    if not resume:
        raise CheckpointError(
            f"{folder} holds a run already: pass resume=True to go on, overwrite=True to start again."
        )
    new = headed(kind, old["id"], describe())
    check_same_run(folder, old, new)
    sweep(folder, kind)
    named = list(dict.fromkeys([*old.get("folders", []), *new.get("folders", [])]))
    if named != old.get("folders", []):  # a comparison that goes on with more seeds or recipes
        write_durable(folder / NAME, to_toml(old | {"folders": named}))
    return lock


def open_fit(
    folder: Path, engine: Engine, describe: Callable[[], RunRecord], *, resume: bool, overwrite: bool
) -> str:
    """The folder of a single run, opened by the first of several processes; the run's id for all."""
    if engine.rank == 0:
        open_run(folder, "fit", describe, resume=resume, overwrite=overwrite)
    engine.barrier()
    return run_id(folder)


def write_new_record(folder: Path, kind: str, record: RunRecord) -> None:
    """Write the record of a new run."""
    write_durable(folder / NAME, to_toml(headed(kind, secrets.token_hex(8), record)))


def check_no_other_files(folder: Path, kind: str) -> None:
    """Raise for a folder that holds files of our names which no run of ours wrote."""
    for name in OWNED[kind]:
        if os.path.lexists(folder / name):
            raise CheckpointError(
                f"{folder / name} exists without a {NAME} of torchlift: "
                "move it away or choose another folder."
            )


def put_aside(folder: Path, record: RunRecord) -> None:
    """Move what a run wrote, and the runs it is made of, out of sight; each move is atomic."""
    aside = folder / f"{ASIDE}{record['id']}"
    try:
        aside.mkdir(exist_ok=True)
        files.sync(folder)
        for inner_folder in run_folders(folder, record):
            with claims():
                claim(inner_folder)
                finish_overwrite(inner_folder)
                inner = read_record(inner_folder)
                if inner is not None:
                    put_aside(inner_folder, inner)
        for name in OWNED[record["kind"]]:
            if os.path.lexists(folder / name):
                os.replace(folder / name, aside / name)
        files.sync(folder)
    except OSError as error:
        raise CheckpointError(f"cannot move the old run in {folder} aside ({error.strerror}).") from error


def run_folders(folder: Path, record: RunRecord) -> list[Path]:
    """The folders of the runs that a comparison is made of."""
    named = [str(name) for name in record.get("folders", [])]
    return [folder / name for name in named if Path(name).name == name and (folder / name).is_dir()]


def finish_overwrite(folder: Path) -> None:
    """Finish what an interrupted ``overwrite`` began: the rest of the old run follows, then all goes."""
    for aside in sorted(folder.glob(f"{ASIDE}*")):
        record = read_record(folder)
        if record is not None and aside.name == f"{ASIDE}{record['id']}":
            put_aside(folder, record)
        for inner_folder in run_folders(folder, read_record(aside) or {}):
            with claims():
                claim(inner_folder)
                finish_overwrite(inner_folder)
            if not any(inner_folder.iterdir()):
                remove(inner_folder)
        remove(aside)


def forget_unstarted(folder: Path) -> None:
    """Remove a run that failed before its first checkpoint, its record last."""
    if not has_checkpoint(folder):
        for name in OWNED["fit"]:
            if os.path.lexists(folder / name):
                remove(folder / name)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is anything to go on from."""
    return any((folder / "fits").rglob(STEPS)) or any((folder / "fits").rglob(FINAL))
