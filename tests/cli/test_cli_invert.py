"""``torchlift invert``: a picture through a saved model and back, the page with pictures, bad input."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from torchlift.cli.pictures import read_array
from torchlift.report.pictures import png

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
    (tmp_path / "x.png").write_bytes(png(image))
    return image


BASE = "invert --model nets.py:make --weights net.safetensors --alpha 0.001 --box 0,1"


@pytest.mark.parametrize(
    "source", ["--input x.npy", "--input x.png --rival none", "--observation y.npy --shape 1,8,8"]
)
def test_a_picture_comes_back(run, net, tmp_path, source):
    if "png" in source:
        pytest.importorskip("PIL")
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


def test_png_round_trip(tmp_path):
    pytest.importorskip("PIL")
    colors = torch.rand(3, 5, 7).mul(255).round() / 255
    (tmp_path / "c.png").write_bytes(png(colors, 0.0, 1.0))
    torch.testing.assert_close(read_array(tmp_path / "c.png"), colors, rtol=0, atol=1e-6)
    assert png(torch.rand(4, 3, 3)) is None
