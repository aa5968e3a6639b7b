"""docs/start.md as a reader follows it: its files written, its commands run in order, each in a process."""

import csv
import re
import shlex
from pathlib import Path

import pytest

from forked import python

PAGE = Path(__file__).parents[2] / "docs" / "start.md"
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_ten_minutes_from_a_trained_network_to_predictions(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    text = PAGE.read_text()
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content)
    printed = {}
    for line in "".join(SHELL.findall(text)).replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line)
        ran = python(*(["-m", "torchlift"] if program == "torchlift" else []), *words, cwd=tmp_path)
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
        printed[words[0]] = ran.stdout

    assert (tmp_path / "small.tl").stat().st_size * 8 < (tmp_path / "net.pt").stat().st_size
    with (tmp_path / "labels.csv").open() as file:
        rows = [(row["sample"], row["label"]) for row in csv.DictReader(file)]
    assert sum(sample.split("/")[0] == label for sample, label in rows) >= 14
    assert [tuple(line.split()) for line in printed["use_onnx.py"].splitlines()] == sorted(rows)
    assert str([label for _, label in rows]) in printed["use.py"]
    assert "Conv2d(3, 12" in printed["use.py"]
    assert set(printed) == {"train.py", "compress", "predict", "measure", "use.py", "export", "use_onnx.py"}
