"""``torchlift invert``: a picture through a saved model and back, the page with pictures, bad input."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

NET = """
from torch import nn
def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU())
"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "nets.py").write_text(NET)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU())
    with torch.no_grad():
        model[1].weight.normal_(std=0.2)
    save_file(model.state_dict(), tmp_path / "net.safetensors")
    image = torch.zeros(1, 8, 8)
    image[0, 2:6, 3:6] = 1
    np.save(tmp_path / "x.npy", image.numpy())
    np.save(tmp_path / "y.npy", model(image[None]).detach().numpy())
    Image.fromarray((255 * image[0]).byte().numpy()).save(tmp_path / "x.png")
    return image


BASE = "invert --model nets.py:make --weights net.safetensors --alpha 0.001 --box 0,1"


@pytest.mark.parametrize(
    "source", ["--input x.npy", "--input x.png --rival none", "--observation y.npy --shape 1,8,8"]
)
def test_a_picture_comes_back(run, net, tmp_path, source):
    ran = run(f"{BASE} {source} --out o --json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    actual = np.load(tmp_path / "o" / "x.npy")
    assert np.abs(actual[0] - net.numpy()).max() < 0.1
    assert said["torchlift"]["converged"]
    assert said["torchlift"]["gap"] <= 1e-3 * said["torchlift"]["objective"]
    assert ("lbfgs" in said) == ("none" not in source)
    page = (tmp_path / "o" / "report.html").read_text()
    assert "reconstruction: torchlift" in page
    assert page.count("data:image/png;base64,") == {"--input x.npy": 5, "--input x.png --rival none": 3}.get(
        source, 2
    )
    assert ("error map" in page) == ("--input" in source)


def test_what_it_prints(run, net):
    ran = run(f"{BASE} --input x.npy --rival none --out o")
    assert ran.code == 0, ran.err
    assert "psnr" in ran.out
    assert "o/report.html" in ran.out


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("one of --input", BASE),
        ("no file", f"{BASE} --input none.npy"),
        ("not an array", f"{BASE} --input nets.py"),
        ("does not take", f"{BASE} --input y.npy"),
        ("--shape says", f"{BASE} --input x.npy --shape 1,4,16"),
        ("as in 1,28,28", f"{BASE} --observation y.npy --shape one"),
        ("--box", BASE.replace("0,1", "zero") + " --input x.npy"),
        ("known: tv", f"{BASE} --input x.npy --reg magic"),
        ("alpha", BASE.replace("0.001", "0") + " --input x.npy"),
        ("no method", f"{BASE} --input x.npy --method magic"),
    ],
)
def test_bad_input_is_one_line(run, net, words, command):
    ran = run(command)
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_a_picture_in_colors_is_read_and_shown_as_it_is(run, tmp_path):
    colors = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    colors[0, 0], colors[0, 1] = 0, 255  # the darkest and the brightest value
    Image.fromarray(colors).save(tmp_path / "c.png")
    (tmp_path / "nets.py").write_text("from torch import nn\nnet = lambda: nn.Flatten()\n")
    ran = run("invert --model nets.py:net --input c.png --rival none --out o")
    assert ran.code == 0, ran.err
    shown = re.findall(r"data:image/png;base64,([^\"]+)", (tmp_path / "o" / "report.html").read_text())
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in shown]
    assert any(np.array_equal(picture, colors) for picture in pictures)


def test_what_is_not_a_picture_is_not_shown(run, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((4, 3, 3), np.float32))
    (tmp_path / "nets.py").write_text("from torch import nn\nnet = lambda: nn.Flatten()\n")
    ran = run("invert --model nets.py:net --input x.npy --rival none --out o")
    assert ran.code == 0, ran.err
    assert "data:image/png" not in (tmp_path / "o" / "report.html").read_text()
