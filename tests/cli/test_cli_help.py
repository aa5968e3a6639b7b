"""Help teaches, starts without torch, and every verb has --json."""

import re
import subprocess
import sys

import pytest

VERBS = ["demo", "fit", "compress", "compare", "auto", "tune", "invert", "measure", "export"]
VERBS += ["predict", "report", "reproduce", "doctor"]

LIGHT = """
import sys
from torchlift.cli import main
for arguments in {calls!r}:
    code = main(arguments)
    assert code == {code}, (arguments, code)
    heavy = [name for name in ("torch", "optuna", "numpy") if name in sys.modules]
    assert not heavy, (arguments, heavy)
"""


def light(calls, code, tmp_path):
    program = LIGHT.format(calls=calls, code=code)
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_help_does_not_import_torch(tmp_path):
    light([[], ["--help"], ["--version"], *([verb, "--help"] for verb in VERBS), ["reproduce"]], 0, tmp_path)


def test_errors_of_form_do_not_import_torch(tmp_path):
    (tmp_path / "bad.toml").write_text("epochs = -3\n")
    calls = [
        ["fit", "--config", "bad.toml"],
        ["fit", "--config", "none.toml"],
        ["fit", "--epochs", "many"],
        ["fit", "--epcohs", "3"],
        ["fti"],
        ["compare", "--set", "where"],
        ["tune", "--space", "lr"],
        ["report", "none"],
        ["reproduce", "none"],
    ]
    ran = light(calls, 2, tmp_path)
    assert ran.stderr.count("\n") == len(calls)
    assert all(line.startswith("torchlift: ") for line in ran.stderr.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_examples_and_json(run, verb):
    ran = run(f"{verb} --help")
    assert ran.code == 0
    assert "Examples:" in ran.out
    assert f"torchlift {verb}" in ran.out
    assert "--json" in ran.out
    assert "--debug" in ran.out


def test_the_verbs_are_those_of_the_contract(run):
    assert re.findall(r"^│ (\w+) ", run("--help").out, re.MULTILINE) == VERBS


def test_near_matches_of_verbs_and_flags(fails):
    fails("fti", "fit")
    fails("fit --epcohs 3", "--epochs")
