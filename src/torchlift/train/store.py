"""A run's folder of fits: ``fits/0003/step-00000120`` while it runs, ``fits/0003/final`` when it is done."""

from pathlib import Path

from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import load_checkpoint, save_checkpoint
from torchlift.train.engines import Engine
from torchlift.train.loop import StateTree

STEPS, FINAL = "step-*.safetensors", "final.safetensors"


class Store:
    """Checkpoints of numbered fits. The previous one is kept until the new one is complete.

    Every checkpoint carries the id of its run (``owner``): one of another run is an error.
    """

    def __init__(self, folder: Path, owner: str = "") -> None:
        self.folder, self.owner = folder, owner

    def fit(self, number: int) -> Path:
        """The folder of one fit."""
        return self.folder / "fits" / f"{number:04d}"

    def inside(self, number: int) -> "Store":
        """The store of a branch: fits numbered from 0 in the folder of one of these."""
        return Store(self.fit(number), self.owner)

    def steps(self, number: int) -> list[Path]:
        """The checkpoints inside a fit, oldest first."""
        return sorted(self.fit(number).glob(STEPS))

    def started(self, number: int) -> bool:
        """Whether the fit has left anything."""
        return bool(self.steps(number)) or (self.fit(number) / FINAL).exists()

    def save(self, number: int, step: int, tree: StateTree, engine: Engine) -> None:
        """Write a checkpoint; then drop all but the two newest."""
        if engine.rank == 0:
            self.write(self.fit(number) / f"step-{step:010d}.safetensors", tree)
            self.drop(self.steps(number)[:-2])
        engine.barrier()

    def finish(self, number: int, tree: StateTree, engine: Engine) -> None:
        """Write the end state; then drop the checkpoints on the way."""
        if engine.rank == 0:
            self.write(self.fit(number) / FINAL, tree)
            self.drop(self.steps(number))
        engine.barrier()

    def latest(self, number: int) -> StateTree | None:
        """The newest checkpoint inside a fit."""
        steps = self.steps(number)
        return self.read(steps[-1]) if steps else None

    def final(self, number: int) -> StateTree | None:
        """The end state of a fit, if it has ended."""
        path = self.fit(number) / FINAL
        return self.read(path) if path.exists() else None

    def write(self, path: Path, tree: StateTree) -> None:
        """Save with the run's id."""
        save_checkpoint(path, tree | {"run": self.owner})

    def read(self, path: Path) -> StateTree:
        """Load, if it is this run's."""
        tree = load_checkpoint(path)
        if not isinstance(tree, dict) or tree.get("run") != self.owner:
            raise CheckpointError(f"{path} belongs to another run than the folder's: delete it.")
        return tree

    def drop(self, old: list[Path]) -> None:
        """Remove checkpoints that newer ones replace."""
        for path in old:
            try:
                path.unlink()
            except OSError as error:
                raise CheckpointError(f"cannot remove {path} ({error.strerror}).") from error
