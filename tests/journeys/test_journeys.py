"""Journeys of a new user: a shell, an empty folder, public commands, and something that works.

The one from a state dict to a file that predicts is in test_start.py.
"""

import csv
import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from forked import Python, python
from torchlift import load_run
from torchlift.errors import TorchliftError

NET = """
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 3 * 3, 64)
        self.fc2 = nn.Linear(64, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(x + self.conv2(x)), 2)
        x = x.view(-1, 16 * 3 * 3)
        return self.fc2(F.relu(self.fc1(x)))
"""

BERT = """
import torch, transformers, torchlift as tl

config = transformers.BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=16,
)
model, tokens = transformers.BertForSequenceClassification(config).eval(), torch.randint(60, (2, 8))
small = tl.deploy.prune(model, tokens, 0.5, exact=False)
small.save_pretrained("small")
back = transformers.BertForSequenceClassification.from_pretrained("small").eval()
with torch.no_grad():
    difference = (back(tokens)[0] - small(tokens)[0]).abs().max().item()
print(small.num_parameters() / model.num_parameters(), difference)
"""

ONNX = """
import json, sys
import numpy as np, onnxruntime
from PIL import Image

said = json.load(open("net.card.json"))
mean, std = (np.array(said["input"][key])[:, None, None] for key in ("mean", "std"))
session = onnxruntime.InferenceSession("net.onnx")
for path in sys.argv[1:]:
    x = (np.asarray(Image.open(path)).transpose(2, 0, 1) / 255 - mean) / std
    (y,) = session.run(None, {session.get_inputs()[0].name: x[None].astype("float32")})
    print(said["output"]["classes"][int(y[0].argmax())])
"""


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a command; ``torchlift`` is this interpreter's."""
    program, *arguments = shlex.split(command)
    module = ["-m", "torchlift"] if program == "torchlift" else []
    ran = python(*module, *arguments, cwd=folder, env={"HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stderr
    return ran


def labels(folder: Path, name: str, column: str) -> dict[str, str]:
    with (folder / name).open() as file:
        return {row["sample"]: row[column] for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Bars and dots of 12 × 12 pixels in folders named after them, some new ones, and the user's class."""
    image = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    (folder / "my_net.py").write_text(NET)
    for split, count in (("data", 40), ("new", 6)):
        for name in ("bar", "dot"):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 80, (12, 12, 3), dtype=np.uint8)
                row, column = rng.integers(2, 9, 2)
                pixels[slice(None) if name == "bar" else slice(row, row + 3), column : column + 3] = 220
                image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def trained(pictures) -> Path:
    """A run of the user's own class."""
    command = "torchlift fit --model my_net.py:Net --data data --batch-size 16 --epochs 12 --lr 0.01"
    shell(pictures, f"{command} --recipe smol --set bytes=4000 --out runs/net")
    return pictures


def table(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ["age,color,weight,kind"]
    for _ in range(120):
        age, color, weight = rng.integers(1, 90), rng.choice(["red", "green"]), rng.normal(60, 10)
        kind = "heavy" if weight + 5 * (color == "red") > 62 else "light"
        rows.append(f"{age},{color},{weight:.1f},{kind}")
    path.write_text("\n".join(rows) + "\n")


def test_a_table_becomes_predictions_in_a_new_process(tmp_path):
    table(tmp_path / "people.csv")
    (tmp_path / "new.csv").write_text("weight,color,age\n95,red,30\n30,green,40\n")
    shell(tmp_path, "torchlift fit --model mlp --data people.csv --epochs 20 --lr 0.01 --out runs/people")
    shell(tmp_path, "torchlift predict runs/people new.csv --out kinds.csv")
    assert list(labels(tmp_path, "kinds.csv", "kind").values()) == ["heavy", "light"]


def test_an_own_network_on_pictures_gives_the_same_labels_from_onnxruntime(trained):
    pytest.importorskip("onnxruntime")
    floats = sum(p.numel() for p in own_network(trained).parameters()) * 4
    assert (trained / "runs/net/model.tl").stat().st_size * 10 <= floats
    shell(trained, "torchlift export runs/net --model my_net.py:Net --to net.onnx")
    shell(trained, "torchlift predict runs/net new --model my_net.py:Net --out new.csv")
    ours = labels(trained, "new.csv", "label")
    paths = [f"new/{sample}" for sample in ours]
    (trained / "run_onnx.py").write_text(ONNX)
    theirs = shell(trained, f"python run_onnx.py {shlex.join(paths)}").stdout.split()
    assert theirs == list(ours.values())
    assert sum(label == path.split("/")[1] for label, path in zip(theirs, paths, strict=True)) >= 11


def own_network(folder: Path) -> torch.nn.Module:
    space: dict[str, type[torch.nn.Module]] = {}
    exec((folder / "my_net.py").read_text(), space)
    return space["Net"]()


def test_a_pruned_bert_comes_back_from_pretrained(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "prune.py").write_text(BERT)
    share, difference = map(float, shell(tmp_path, "python prune.py").stdout.split())
    assert share < 0.4
    assert difference == 0


def test_ctrl_c_resume_report(tmp_path):
    table(tmp_path / "people.csv")
    command = "-m torchlift fit --model mlp --data people.csv --batch-size 4 --epochs 500 --out runs/people"
    process = Python(command.split(), tmp_path)
    history = tmp_path / "runs/people/history.jsonl"
    while not (history.exists() and history.read_text().count("\n") > 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    with pytest.raises(TorchliftError, match=r"the run stopped after \d+ epochs: go on with resume=True"):
        load_run(tmp_path / "runs/people")
    shell(tmp_path, said.strip().rpartition("resume with: ")[2])
    shell(tmp_path, "torchlift report runs/people")
    assert "accuracy" in (tmp_path / "runs/people/report.html").read_text()
    card = json.loads((tmp_path / "runs/people/card.json").read_text())
    assert card["output"]["classes"] == ["heavy", "light"]
