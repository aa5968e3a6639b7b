"""A run's folder of fits: ``fits/0003/step-00000120`` while it runs, ``fits/0003/final`` when it is done."""

from pathlib import Path

from torchlift.train.checkpoint import load, save
from torchlift.train.engines import Engine
from torchlift.train.loop import Tree


class Store:
    """Checkpoints of numbered fits. The previous one is kept until the new one is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fit(self, number: int) -> Path:
        """The folder of one fit."""
        return self.folder / "fits" / f"{number:04d}"

    def steps(self, number: int) -> list[Path]:
        """The checkpoints inside a fit, oldest first."""
        return sorted(self.fit(number).glob("step-*.safetensors"))

    def started(self, number: int) -> bool:
        """Whether the fit has left anything."""
        return bool(self.steps(number)) or (self.fit(number) / "final.safetensors").exists()

    def save(self, number: int, step: int, tree: Tree, engine: Engine) -> None:
        """Write a checkpoint; then drop all but the two newest."""
        if engine.rank == 0:
            save(self.fit(number) / f"step-{step:010d}.safetensors", tree)
            for old in self.steps(number)[:-2]:
                old.unlink()
        engine.barrier()

    def finish(self, number: int, tree: Tree, engine: Engine) -> None:
        """Write the end state; then drop the checkpoints on the way."""
        if engine.rank == 0:
            save(self.fit(number) / "final.safetensors", tree)
            for old in self.steps(number):
                old.unlink()
        engine.barrier()

    def latest(self, number: int) -> Tree | None:
        """The newest checkpoint inside a fit."""
        steps = self.steps(number)
        return load(steps[-1]) if steps else None

    def final(self, number: int) -> Tree | None:
        """The end state of a fit, if it has ended."""
        path = self.fit(number) / "final.safetensors"
        return load(path) if path.exists() else None
