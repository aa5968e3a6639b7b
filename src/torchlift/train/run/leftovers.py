"""What is ours in a folder, and what of it a crash left over."""

import shutil
from pathlib import Path

from torchlift.errors import CheckpointError
from torchlift.files import temporary_of
from torchlift.train.run.record import NAME
from torchlift.train.store import FINAL, STEPS

OWNED = {
    "fit": (
        "history.jsonl",
        "result.json",
        "report.html",
        "model.safetensors",
        "model.tl",
        "card.json",
        "fits",
        "tensorboard",
        NAME,
    ),
    "comparison": ("comparison.json", "prices.jsonl", "report.html", NAME),
    "auto": ("ledger.jsonl", "auto.json", "model.tl", "card.json", "models", "runs", "report.html", NAME),
    "search": ("study.journal", "tuning.json", "best.toml", "report.html", NAME),
}
"""What each kind of run writes; the record is last, because it vouches for the others."""


def sweep(folder: Path, kind: str) -> None:
    """Remove what a crash left: half-written files, and checkpoints on the way to an end that is reached."""
    for path in leftovers(folder, kind):
        remove(path)


def leftovers(folder: Path, kind: str) -> list[Path]:
    """What :func:`sweep` removes: of a kind of run, or of a single file."""
    ours = OWNED.get(kind, (kind,))
    paths = [path for path in folder.glob(".*.tmp") if temporary_of(path) in ours]
    if kind == "auto":
        paths += [path for path in folder.glob("models/.*.tmp") if temporary_of(path)]
    if kind == "fit":
        paths += [path for path in folder.glob("fits/**/.*.tmp") if temporary_of(path)]
        paths += [step for end in folder.glob(f"fits/**/{FINAL}") for step in end.parent.glob(STEPS)]
    return sorted(paths)


def remove(path: Path) -> None:
    """Remove a file or a folder of ours; what cannot be removed is an error."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise CheckpointError(f"cannot remove {path} ({error.strerror}): remove it by hand.") from error
