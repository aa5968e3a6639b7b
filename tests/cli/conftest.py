"""The command line in this process, in a folder of its own."""

import dataclasses
from pathlib import Path

import pytest

from cli.blobs import save_blobs
from torchlift.cli import main


@dataclasses.dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """``run("fit --model mlp …")``: exit code and both streams."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHLIFT_DATA", raising=False)
    monkeypatch.delenv("TORCHLIFT_DEBUG", raising=False)

    def call(command: str, *more: str) -> Ran:
        capsys.readouterr()
        code = main([*command.split(), *more])
        streams = capsys.readouterr()
        return Ran(code, streams.out, streams.err)

    return call


@pytest.fixture
def blobs(tmp_path) -> Path:
    """Two classes in the plane, as an .npz file."""
    path = tmp_path / "blobs.npz"
    save_blobs(path)
    return path


@pytest.fixture
def fails(run):
    """``fails(command, words…)``: one line, exit code 2, nothing on stdout, every word in the line."""

    def check(command: str, *words: str, code: int = 2) -> str:
        ran = run(command)
        assert ran.code == code, ran.err
        assert ran.out == ""
        assert ran.err.startswith("torchlift: ")
        assert ran.err.count("\n") == 1, ran.err
        for word in words:
            assert word in ran.err
        return ran.err

    return check
