"""Loaders with workers: bit for bit on resume, and no run that cannot be stopped."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import torchlift as tl
from forked import Python
from torchlift.train import Interrupted
from train.run.runs import data, model, same


class Noisy(Dataset):
    """Every sample draws from the worker's own random stream."""

    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index] + 0.1 * torch.randn(4), self.y[index]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("ignore:persistent_workers=True is ignored")
def test_workers_with_random_streams_resume_bit_for_bit(tmp_path: Path, persistent: bool) -> None:
    def go(out: Path | None, **more: object) -> tl.Result:
        train = DataLoader(Noisy(), 16, shuffle=True, num_workers=1, persistent_workers=persistent)
        valid = DataLoader(Noisy(), 32, num_workers=1, persistent_workers=persistent)
        return tl.fit(model(), train, valid, out=out, epochs=3, save_every=0.0, progress=False, **more)

    def stop(row: dict[str, object]) -> None:
        if row["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    reference = go(None)
    with pytest.raises(Interrupted):
        go(tmp_path, listener=stop)
    assert same(go(tmp_path, resume=True).model, reference.model)


def test_persistent_workers_are_said_not_to_be(tmp_path: Path) -> None:
    loader = DataLoader(Noisy(), 16, num_workers=1, persistent_workers=True)
    with pytest.warns(UserWarning, match="workers restart every epoch"):
        source = tl.train.source(loader, 16)
    assert not source.loader.persistent_workers
    assert loader.persistent_workers, "the user's own loader is left alone"


HANGING = """
import sys, time, torch, torchlift as tl
class Hanging(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == 39:
            print("hangs", flush=True)
            time.sleep(1000)
        return torch.randn(4), index % 2
loader = torch.utils.data.DataLoader(Hanging(), batch_size=8, num_workers=1)
try:
    tl.fit(torch.nn.Linear(4, 2), loader, progress=False, out=sys.argv[1])
except tl.train.Interrupted as stop:
    print(stop, flush=True)
"""


def test_one_signal_ends_a_run_whose_worker_hangs(tmp_path: Path) -> None:
    process = Python(["-c", HANGING, str(tmp_path / "run")], tmp_path)
    while process.said() != "hangs\n":
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.removeprefix("hangs\n").startswith("stopped before the first checkpoint")
    assert process.returncode == 0
