"""One clear line each, nothing half-written."""

import functools
import multiprocessing
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import torchlift as tl
from forked import python
from torchlift.errors import CheckpointError, DataError, DivergedError, SelectionError, TorchliftError

X = torch.randn(40, 4)
Y = torch.arange(40) % 2
NAN = torch.where(torch.arange(40)[:, None] == 7, torch.nan, X)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2))


BAD_DATA = {
    "empty": ((X[:0], Y[:0]), "empty"),
    "nan": ((NAN, Y), "NaN or Inf .first in sample 7"),
    "lengths": ((X, Y[:30]), r"one number of samples; got \[40, 30\]"),
    "one class": ((X, torch.zeros(40, dtype=torch.long)), "all labels are class 0"),
    "too many classes": ((X, torch.arange(40) % 3), r"labels run over 0\.\.2, but the model has 2 outputs"),
    "float labels": ((X, Y.int()), "int64 labels"),
    "wrong width": ((torch.randn(40, 5), Y), r"does not take inputs of shape \(5,\)"),
    "a list": (([[1.0]], Y), "not a float"),
    "no samples": (DataLoader(TensorDataset(X[:0], Y[:0])), "empty"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_data_no_problem_fits(tmp_path: Path, name: str) -> None:
    train, message = BAD_DATA[name]
    with pytest.raises(DataError, match=message) as caught:
        tl.fit(net(), train, out=tmp_path / "run", progress=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_sequences_shorter_than_the_classes_are_many() -> None:
    words = torch.arange(40 * 3).view(40, 3) % 7
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    tl.fit(model, (words, words.roll(1, 1)), epochs=1, progress=False)
    with pytest.raises(DataError, match="model has 5 outputs"):
        tl.fit(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5)), (words, words), progress=False)


def test_regression_shapes_do_not_broadcast() -> None:
    with pytest.raises(DataError, match="one shape"):
        tl.fit(nn.Linear(4, 3), (X, torch.randn(40)), loss="mse", progress=False)


DYING = """
import os, torch, torchlift as tl
class Dying(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == 20:
            os._exit(3)
        return torch.randn(4), index % 2
loader = torch.utils.data.DataLoader(Dying(), batch_size=8, num_workers=1)
try:
    tl.fit(torch.nn.Linear(4, 2), loader, progress=False)
except tl.TorchliftError as error:
    print(error, flush=True)
os._exit(0)
"""


def test_a_worker_that_dies() -> None:
    """In a process of its own: torch raises in the main thread, whatever that is doing, perhaps twice."""
    done = python("-c", DYING)
    assert re.fullmatch(r"a DataLoader worker died .*num_workers=0.*\n", done.stdout), (
        done.stdout + done.stderr
    )


def broken(fault: Callable[[], object]) -> DataLoader:
    """A loader that fails in its second epoch, in this process."""
    batches = list(range(10))

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index == 0 and not batches.pop():
                fault()
            return X[index], Y[index]

    return DataLoader(Samples(), batch_size=20)


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionResetError])
def test_a_dead_worker_is_one_line_that_names_the_fix(kind: type[Exception]) -> None:
    death = kind("DataLoader worker (pid 7) exited unexpectedly\nmore")
    with pytest.raises(DataError, match=r"^a DataLoader worker died .*num_workers=0.*$"):
        tl.fit(net(), broken(lambda: fails(death)), epochs=20, progress=False)


@pytest.mark.parametrize("error", [RuntimeError("something else"), EOFError("of a file")])
def test_another_error_of_a_loader_is_not_taken_for_a_dead_worker(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        tl.fit(net(), broken(lambda: fails(error)), epochs=20, progress=False)


def test_a_worker_that_hangs_up_while_it_sends_is_told_alike() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with pytest.raises(DataError, match=r"worker died \(it hung up\)"):
        tl.fit(net(), broken(ours.recv), epochs=20, progress=False)


def test_a_loss_that_leaves_the_numbers_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    calls = [0]

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        calls[0] += 1
        value = nn.functional.cross_entropy(model(batch[0]), batch[1])
        return value * float("nan") if calls[0] > 12 else value

    with pytest.raises(DivergedError, match=r"nan at step \d+ .*learning rate"):
        tl.fit(net(), (X, Y), loss=loss, batch_size=8, out=tmp_path, save_every=0.0, progress=False)
    kept = sorted((tmp_path / "fits" / "0000").glob("step-*"))
    assert kept
    weights = {name: t for name, t in load_file(kept[-1]).items() if name.startswith("problem.")}
    assert weights
    assert all(bool(torch.isfinite(t).all()) for t in weights.values())


def test_divergence_by_a_wild_learning_rate() -> None:
    wild = functools.partial(torch.optim.SGD, lr=1e30)
    with pytest.raises(DivergedError, match="step"):
        tl.fit(net(), (X, X @ torch.randn(4, 2)), loss="mse", optimizer=wild, epochs=20, progress=False)


def test_unknown_names_and_settings() -> None:
    with pytest.raises(SelectionError, match="matches nothing"):
        tl.fit(net(), (X, Y), recipe=tl.lifts.Lifter("fc1"), progress=False)
    with pytest.raises(TorchliftError, match="schedule"):
        tl.fit(net(), (X, Y), schedule="cosin", progress=False)
    with pytest.raises(TorchliftError, match="recipe"):
        tl.fit(net(), (X, Y), recipe="plane", progress=False)
    with pytest.raises(TorchliftError, match="positive"):
        tl.fit(net(), (X, Y), epochs=0, progress=False)
    with pytest.raises(TorchliftError, match="no setting lrr"):
        tl.fit(net(), (X, Y), recipe=lambda task, fit: fit(task, lrr=1.0), progress=False)
    with pytest.raises(DataError, match=r"nn\.Module"):
        tl.fit("lenet", (X, Y))


def test_a_recipe_must_come_back() -> None:
    with pytest.raises(TorchliftError, match="projected Task"):
        tl.fit(net(), (X, Y), recipe=lambda task, fit: tl.lifts.SoftMask().lift(task), progress=False)


def test_an_output_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="choose another folder"):
        tl.fit(net(), (X, Y), out=tmp_path / "file" / "run", progress=False)


def test_large_numbers_whose_sum_overflows_are_data() -> None:
    still = functools.partial(torch.optim.SGD, lr=0.0)
    tl.fit(net(), (torch.full((8, 4), 1e38), Y[:8]), optimizer=still, loss=tiny, epochs=1, progress=False)


class Sums(TorchDispatchMode):
    """Counts sums over all samples at once."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        self.count += func is torch.ops.aten.sum.default and args[0].shape == X.shape
        return func(*args, **kwargs or {})


def test_data_in_memory_are_looked_at_once() -> None:
    with Sums() as sums:
        tl.fit(net(), (X, Y), epochs=2, batch_size=20, progress=False)
    assert sums.count == 1


def tiny(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return model(batch[0] * 1e-38).mean()
