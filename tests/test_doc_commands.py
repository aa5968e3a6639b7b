"""Every ``torchlift`` command of the README and the pages: run in a folder as a reader would, in their order.

Blocks marked ``sh`` run in a temporary folder that holds the files which pages speak of. What needs data or
machines that are not here is only checked to be a command that exists, with flags that exist.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from torchlift.cli import main
from torchlift.cli.program import build_program
from torchlift.data import digits

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NOT_HERE = re.compile(r"cifar10|reproduce \w|--minutes|^demo|--trials 30|--tune|--seeds|best\.toml")
"""Data that are not embedded, minutes of work, several machines: read, not run."""
NETWORK = """
from torch import nn


def make():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def commands(page: Path) -> list[list[str]]:
    """The words of every ``torchlift`` line, comments gone, continued lines joined."""
    blocks = [match[2].replace("\\\n", " ") for match in BLOCK.finditer(page.read_text())]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("torchlift ")]


START = ROOT / "docs" / "start.md"  # followed whole by journeys/test_start.py
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page != START and commands(page)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of the names that pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHLIFT_DATA", raising=False)
    splits = digits()
    x, y = (tensor[:200].numpy() for tensor in splits.train)
    np.savez("mine.npz", x=x, y=y)
    np.savez("digits.npz", x=splits.test[0][:5].numpy())
    Path("my_net.py").write_text(NETWORK)
    Path("run.toml").write_text('model = "mlp"\ndata = "digits"\nepochs = 1\nout = "runs/toml"\n')
    scope: dict[str, object] = {}
    exec(NETWORK, scope)
    make = scope["make"]
    assert callable(make)
    torch.save(make().state_dict(), "net.pt")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_commands_run(page, folder, capsys):
    app = build_program()
    for words in commands(page):
        if NOT_HERE.search(shlex.join(words)):
            app.parse_args(words, exit_on_error=False, print_error=False)
        else:
            assert main(words) == 0, f"torchlift {shlex.join(words)}: {capsys.readouterr().err}"
