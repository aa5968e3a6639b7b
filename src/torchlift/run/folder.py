"""A run's folder: what was asked for (``run.toml``), and refusing to mix two runs in one place."""

import contextlib
import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import write

OURS = ("run.toml", "history.jsonl", "result.json", "report.html", "model.safetensors")
FOLDERS = ("fits", "tensorboard")

Setting = str | int | float | bool


def open_run(folder: Path, settings: Mapping[str, Setting], *, resume: bool, overwrite: bool) -> None:
    """Start in an empty folder, or go on in one whose run was asked for in the same way."""
    record = folder / "run.toml"
    if record.exists() and overwrite:
        clear(folder)
    if not record.exists():
        write(record, to_toml(settings).encode())
        return
    if not resume:
        raise CheckpointError(
            f"{folder} holds a run already: pass resume=True to go on, overwrite=True to start anew."
        )
    compare_settings(folder, read_toml(record), settings)


def compare_settings(folder: Path, old: Mapping[str, Setting], new: Mapping[str, Setting]) -> None:
    """Name the first thing in which the run in the folder differs from the one asked for."""
    for name in [*new, *(set(old) - set(new))]:
        if old.get(name) != new.get(name):
            raise CheckpointError(
                f"{folder} was made with {name} = {old.get(name)!r}, now it is {new.get(name)!r}: "
                "use the old setting, another folder, or overwrite=True."
            )


def forget_unstarted(folder: Path) -> None:
    """Remove the record of a run that failed before its first checkpoint, and a folder that empties."""
    if not any((folder / "fits").rglob("*.safetensors")):
        clear(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def clear(folder: Path) -> None:
    """Remove what torchlift wrote there, and nothing else."""
    for name in OURS:
        (folder / name).unlink(missing_ok=True)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def to_toml(settings: Mapping[str, Setting]) -> str:
    """Flat TOML; JSON's strings and numbers are TOML's too."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    return "# Everything needed to repeat this run.\n" + "\n".join(lines) + "\n"


def read_toml(path: Path) -> dict[str, Setting]:
    """The settings of a run; a damaged record is a one-line error."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): pass overwrite=True to start anew.") from error
