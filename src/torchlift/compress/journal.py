"""Solved layers of a call: what is in the journal is not solved again.

The steps of a call depend on the model, the data and the settings alone, so that a call that was
interrupted simply runs again: each step that the journal has returns at once. A line of the journal is a
step, its tensors are in a file beside it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn

from torchlift import files
from torchlift.compress.calibration import distributed
from torchlift.errors import CheckpointError
from torchlift.journal import Journal

StepTensors = dict[str, Tensor]


class StepJournal:
    """Steps by number, in a folder; without a folder nothing is kept. The journal's owner is the call."""

    def __init__(self, folder: Path | None, identity: str, *, resume: bool = False) -> None:
        self.folder = None if folder is None else folder / "layers"
        self.number, self.solved = 0, 0
        if self.folder is None:
            return
        self.journal = Journal(self.folder / "steps.jsonl", identity)
        if self.journal.path.exists():
            if not resume:
                raise CheckpointError(
                    f"{folder} holds an earlier compress: pass resume=True, or another folder."
                )
            try:
                self.solved = sum("step" in record for record in self.journal.read())
            except CheckpointError as error:
                raise CheckpointError(
                    f"{folder} belongs to another model, data or targets, or is damaged: pass another folder."
                ) from error
        elif self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.journal.append({})

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return not distributed() or dist.get_rank() == 0

    def __call__(self, compute: Callable[[], StepTensors]) -> StepTensors:
        """The next step: from the journal, or computed and written down."""
        number, self.number = self.number, self.number + 1
        if self.folder is None:
            return compute()
        path = self.folder / f"{number:05d}.safetensors"
        if number < self.solved:
            return load(path.read_bytes())
        step = {name: t.detach().cpu().contiguous().clone() for name, t in compute().items()}
        if self.writes:
            files.write_file(path, save(step))
            self.journal.append({"step": number})
        return step


def identity_of(model: nn.Module, batches: Iterator[Any], settings: dict[str, Any]) -> str:
    """A digest of a call: weights, inputs, settings."""
    from torchlift.tree import leaves

    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy(force=True).tobytes())
    for tensor in leaves(next(batches)):
        digest.update(tensor.detach().cpu().contiguous().numpy(force=True).tobytes())
    return digest.hexdigest()
