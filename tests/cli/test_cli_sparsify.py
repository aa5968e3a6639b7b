"""A vision transformer made sparse from the command line: the target, SIGKILL, ONNX."""

import json
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from forked import Python, wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")

MODEL = """
import transformers

def make():
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16,
        patch_size=8, num_labels=3,
    )
    return transformers.ViTForImageClassification(config)
"""
FIT = "fit --model vit_model.py:make --data images.npz --recipe sparsify --set sparsity=0.95 --epochs 12"


@pytest.fixture
def folder(tmp_path):
    """A user's folder: a file with a model, a file with data."""
    (tmp_path / "vit_model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(96, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "images.npz", x=x, y=x.mean((2, 3)).argmax(1))
    return tmp_path


def killed(folder, command: str, sign: str) -> None:
    """Start a run in a process of its own and kill it once it has left the sign."""
    process = Python(["-m", "torchlift", *command.split()], folder)
    wait_until(folder / sign, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.filterwarnings("ignore:every gate of")  # 5 % of so few weights leaves some layers with one
def test_asked_is_got_survives_a_kill_and_runs_in_onnx(run, folder):
    killed(folder, f"{FIT} --batch-size 2 --out a", "a/fits/0000/final.safetensors")
    resumed = run(f"{FIT} --batch-size 2 --out a --resume --json")
    assert resumed.code == 0, resumed.err
    assert run(f"{FIT} --batch-size 2 --out b").code == 0
    broken, whole = (load_file(folder / name / "model.safetensors") for name in "ab")
    assert all(torch.equal(broken[key], value) for key, value in whole.items())

    weights = [w for key, w in whole.items() if key.endswith("weight") and w.ndim > 1]
    achieved = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
    assert achieved == pytest.approx(0.95, abs=0.005)
    last = json.loads((folder / "b" / "result.json").read_text())["history"][-1]
    assert (last["sparsity_target"], last["sparsity"]) == (0.95, pytest.approx(achieved))
    page = (folder / "b" / "report.html").read_text()
    assert "Target and achieved" in page
    assert "against sparsity" in page

    export = "export --model vit_model.py:make --weights b/model.safetensors --data images.npz --to vit.onnx"
    ran = run(export)
    assert ran.code == 0, ran.err
    assert ours(folder, whole) == pytest.approx(theirs(folder), abs=1e-5)


def images(folder) -> np.ndarray:
    return np.load(folder / "images.npz")["x"][:4]


def ours(folder, weights) -> np.ndarray:
    import transformers

    scope: dict = {"transformers": transformers}
    exec((folder / "vit_model.py").read_text(), scope)
    model = scope["make"]().eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        return model(torch.tensor(images(folder))).logits.numpy()


def theirs(folder) -> np.ndarray:
    session = onnxruntime.InferenceSession(folder / "vit.onnx")
    return session.run(None, {session.get_inputs()[0].name: images(folder)})[0]
