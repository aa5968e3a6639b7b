"""Files of every format that was released can be read: a folder of each is kept here."""

from pathlib import Path

import pytest
import torch

from torchlift.train.checkpoint import load
from torchlift.train.history import History
from torchlift.train.run.record import arguments, read_record
from torchlift.train.store import Store

KEPT = sorted(Path(__file__).parent.glob("format*"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_a_kept_run_is_read_whole(folder: Path) -> None:
    record = read_record(folder)
    assert record is not None
    final = Store(folder, record["id"]).final(0)
    assert final is not None
    weights = load(folder / "model.safetensors")
    assert all(torch.equal(final["problem"][f"model.{name}"], value) for name, value in weights.items())
    history = History(folder / "history.jsonl", writes=False)
    history.rewind(final["history"])
    assert [row["epoch"] for row in history.rows] == [1, 2]
    given = arguments(folder)
    assert (given["epochs"], given["seed"], given["optimizer"].keywords["lr"]) == (2, 0, 1e-3)
