"""Bad input: one clear line, an exit code, nothing half-written."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from cli.blobs import save_blobs

MLP = "fit --model mlp --arg hidden=[8] --epochs 2"
FIT = f"{MLP} --data blobs.npz --out a"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit", ["no model given", "--model"]),
        ("fit --model mlp", ["no data given", "--data"]),
        ("fit --model lenet --data blobs.npz", ["'lenet'", "did you mean 'lenet5'"]),
        ("fit --model nowhere.net:make --data blobs.npz", ["no module 'nowhere'"]),
        ("fit --model torch.nn:Linaer --data blobs.npz", ["'Linaer'", "'Linear'"]),
        ("fit --model none.py:make --data blobs.npz", ["there is no file none.py"]),
        ("fit --model os.path:sep --data blobs.npz", ["not a factory"]),
        ("fit --model os:getpid --data blobs.npz", ["returned a int, not an nn.Module"]),
        ("fit --model mlp --arg hiden=[8] --data blobs.npz", ["'hiden'", "'hidden'"]),
        ("fit --model mlp --arg hidden=8 --data blobs.npz", ["--model mlp cannot be made"]),
        ("fit --model lenet5 --data blobs.npz", ["lenet5 takes inputs of 3 dimensions", "(4,)"]),
        ("fit --model mlp --data blbs.npz", ["blbs.npz", "not there"]),
        ("fit --model mlp --data digtis", ["'digtis'", "'digits'"]),
        ("fit --model mlp --data cifar10", ["cifar10", "TORCHLIFT_DATA"]),
        ("fit --model mlp --data cifar10 --data-folder nowhere", ["nowhere"]),
        (f"{FIT} --recipe neural-liftng", ["'neural-liftng'", "did you mean 'neural-lifting'"]),
        (f"{FIT} --recipe neural-lifting", ["needs where", "--set where="]),
        (f"{FIT} --recipe neural-lifting --set whre=x", ["'whre'", "'where'", "cycles"]),
        (f"{FIT} --recipe neural-lifting --set where=linear1 --set cycles=two", ["cycles", "valid integer"]),
        (f"{FIT} --recipe neural-lifting --set where=linear1 --set kind=cube", ["kind"]),
        (f"{FIT} --recipe neural-lifting --set where=linear1 --set until={{patience=3}}", ["until", "cap"]),
        (f"{FIT} --recipe neural-lifting --set where=linear9", ["linear9", "linear1"]),
        (f"{FIT} --recipe sparsify --set sparsity=1.5", ["sparsity"]),
        (f"{FIT} --recipe plain --set rank=2", ["'rank'", "there are none"]),
        ("compare --model mlp --data blobs.npz --recipe smol --set plain.rank=2", ["plain's field 'rank'"]),
        (f"{FIT} --recipe plain --recipe best-of", ["one recipe", "torchlift compare"]),
        (f"{FIT} --optimizer sdg", ["'sdg'", "'sgd'"]),
        (f"{FIT} --optimizer sgd --opt momentun=0.9", ["'momentun'", "'momentum'"]),
        (f"{FIT} --optimizer sgd --opt momentum=-2", ["momentum"]),
        (f"{FIT} --device tpux", ["--device tpux"]),
        ("compare --model mlp --data blobs.npz", ["compare with plain", "--recipe"]),
        ("compare --model mlp --data blobs.npz --recipe smol --set nope.rank=2", ["'nope'"]),
        ("measure", ["no example input"]),
        ("measure --example 1,4", ["no model given"]),
        ("measure --model lenet5 --example 1,x", ["--example", "1,3,32,32"]),
        ("measure --model mlp --example 1,4 --weights none", ["there is no file none"]),
        ("measure --model mlp --example 1,4 --weights blobs.npz", ["blobs.npz"]),
        ("report none", ["there is no folder and no file none"]),
        ("report .", ["holds no run"]),
        ("reproduce tabel3", ["'tabel3'", "'table3'"]),
        ("demo --seeds 0", ["at least one seed"]),
    ],
)
def test_one_line(fails, blobs, command, words):
    before = sorted(blobs.parent.rglob("*"))
    fails(command, *words)
    assert sorted(blobs.parent.rglob("*")) == before, "something was left behind"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": np.full((120, 4), np.nan, np.float32)}, ["NaN", "120 samples"]),
        ({"x": np.zeros((0, 4), np.float32), "y": np.zeros(0, int)}, ["empty"]),
        ({"y": np.zeros(120, int)}, ["one class only"]),
        ({"y": np.arange(119) % 2}, ["120 inputs but 119 targets"]),
        ({"y": np.arange(120) % 2 - 1}, ["negative"]),
        ({"y": np.array(["a", "b"] * 60)}, ["not numbers"]),
        ({"y": np.array([{}] * 120, dtype=object)}, ["plain arrays"]),
    ],
)
def test_bad_arrays(fails, tmp_path, changes, words):
    save_blobs(tmp_path / "blobs.npz", **changes)
    fails(FIT, "blobs.npz", *words)
    assert not (tmp_path / "a").exists()


def test_a_model_of_another_shape(fails, blobs, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nnarrow = nn.Linear(3, 2)\none = nn.Linear(4, 1)\n"
    )
    fails("fit --model mine.py:narrow --data blobs.npz --out a", "shape (4,)")
    fails(
        "fit --model mine.py:one --data blobs.npz --out a",
        "an output per class, the model has one",
        "loss='bce'",
    )
    assert not (tmp_path / "a").exists()


def test_a_model_that_breaks_on_import(fails, blobs, tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('two\\nlines')\n")
    fails("fit --model broken.py:make --data blobs.npz", "broken.py failed", "RuntimeError: two lines")
    fails("fit --model broken:make --data blobs.npz", "importing broken failed")


def test_an_out_folder_that_cannot_be(fails, blobs):
    fails(f"{MLP} --data blobs.npz --out blobs.npz/a", "cannot write", "Not a directory")


@pytest.mark.parametrize("allowed", [0, 2, 4])
def test_a_full_disk(fails, blobs, monkeypatch, allowed):
    sync, calls = os.fsync, [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] > allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    fails(FIT, "cannot write", "No space left on device")
    assert not list((blobs.parent).rglob("*.tmp"))
    if allowed < 3:
        assert not list((blobs.parent / "a").rglob("*.*"))


def test_a_diverging_run_fails_with_another_code(fails, blobs, tmp_path):
    y = np.linspace(-1, 1, 120).astype(np.float32)
    save_blobs(tmp_path / "blobs.npz", y=y)
    fails(f"{FIT} --optimizer sgd --lr 1e30", "lower the learning rate", code=1)


def corrupt(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def test_checkpoints_of_other_runs_and_damaged_ones(run, fails, blobs, tmp_path):
    assert run(FIT).code == 0
    fails(
        FIT.replace("[8]", "[9]") + " --resume",
        "a was made with model.modules.",
        "out_features=8",
        "out_features=9",
        "--overwrite",
    )
    fails(FIT + " --recipe expand --resume", "a was made with recipe", "Expand")
    fails(FIT + " --seed 1 --resume", "was made with")
    record = tmp_path / "a" / "run.toml"
    text = record.read_text()
    record.write_text(text.replace('torchlift = "', 'torchlift = "9'))
    fails(FIT + " --resume", "made with torchlift = '9")
    record.write_text("torchlift = [")
    fails(FIT + " --resume", "run.toml is damaged")
    record.write_text(text)
    (final,) = (tmp_path / "a" / "fits").rglob("final.safetensors")
    corrupt(final)
    fails(FIT + " --resume", "is damaged")
    assert run(FIT + " --overwrite").code == 0


def test_weights_of_another_model(run, fails, blobs, tmp_path):
    run(FIT)
    command = "measure --model mlp --arg hidden=[9] --data blobs.npz --weights a/model.safetensors"
    fails(command, "do not fit the model")
    corrupt(tmp_path / "a" / "model.safetensors")
    fails(command.replace("[9]", "[8]"), "model.safetensors")


def test_a_damaged_result(run, fails, blobs, tmp_path):
    run(FIT)
    corrupt(tmp_path / "a" / "result.json")
    fails("report a", "result.json is damaged")


def test_tracebacks_only_when_asked_for(run, monkeypatch):
    assert "Traceback" not in run("fit").err
    assert "Traceback" in run("fit --debug").err
    monkeypatch.setenv("TORCHLIFT_DEBUG", "1")
    assert "Traceback" in run("fit").err


def test_what_nobody_foresaw_is_one_line_too(fails, blobs, tmp_path):
    (tmp_path / "mine.py").write_text("def make():\n    raise KeyError('width')\n")
    fails("fit --model mine.py:make --data blobs.npz", "KeyError: 'width'", "--debug", code=1)
