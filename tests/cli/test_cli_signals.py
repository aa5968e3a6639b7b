"""Ctrl-C and SIGTERM: saved, the exit code says which, the printed command ends in the same weights."""

import shlex
import signal
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from cli.blobs import save_blobs
from forked import Python, wait_until

pytestmark = pytest.mark.slow
FIT = "fit --model mlp --data blobs.npz --batch-size 4 --lr 0.01"


def stopped(command, folder, number, sign):
    """Send the signal once the sign is there; exit code, stdout, stderr."""
    save_blobs(folder / "blobs.npz")
    process = Python(["-m", "torchlift", *command.split()], folder)
    wait_until(folder / sign, process)
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:  # Python may drop an interrupt that falls into a destructor
        process.send_signal(number)
        out, err = process.communicate()
    return process.returncode, out, err


def test_ctrl_c(tmp_path):
    code, out, err = stopped(f"{FIT} --epochs 9999 --out a", tmp_path, signal.SIGINT, "a/history.jsonl")
    assert (code, out) == (130, "")
    assert err.startswith("torchlift: saved; resume with: torchlift fit ")


def test_the_printed_command_goes_on_to_the_same_weights(run, tmp_path):
    command = f"{FIT} --epochs 60 --out a --overwrite"
    code, out, err = stopped(command, tmp_path, signal.SIGTERM, "a/history.jsonl")
    assert (code, out) == (143, "")
    assert err.count("\n") == 1
    said = shlex.split(err.strip().rpartition("resume with: ")[2])
    assert said[0] == "torchlift"
    assert said[-1] == "--resume"
    assert "--overwrite" not in said
    assert run("", *said[1:]).code == 0
    assert run(f"{FIT} --epochs 60 --out b").code == 0
    broken, straight = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(torch.equal(broken[name], straight[name]) for name in straight)


def test_a_search_is_kept(run, tmp_path):
    command = "tune --model mlp --data blobs.npz --space lr=0.001:0.1:log --trials 100 --epochs 30 --out t"
    code, _, err = stopped(command, tmp_path, signal.SIGTERM, "t/study.journal")
    assert code == 143, err
    assert "saved; resume with: torchlift tune" in err
    ran = run(command.replace("100", "2") + " --resume")
    assert ran.code == 0, ran.err
