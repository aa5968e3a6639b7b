"""Entries are found beside the package, run with what was chosen, and missed in words that help."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchlift.cli import reproduction as reproduce

ROOT = Path(__file__).parents[2]
ENTRY = '''"""A table."""

from {home}.shared.numbers import SEVEN


def run(out, data=None, seeds=1, epochs=1.0):
    """Say what was asked."""
    rows = [[str(out), data, seeds, epochs, SEVEN, float("nan")]]
    return {{"title": "T", "finding": "as claimed", "columns": list("abcdef"), "rows": rows}}
'''


@pytest.fixture
def papers(tmp_path, monkeypatch):
    """``papers(name)``: a folder of papers with an entry and what it shares; forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(name="tables", entry=ENTRY):
        folder = tmp_path / name
        for package in ("a_paper", "shared"):
            (folder / package).mkdir(parents=True)
        (folder / "shared" / "numbers.py").write_text("SEVEN = 7\n")
        (folder / "a_paper" / "my_table.py").write_text(entry.format(home=name))
        return folder

    before = set(sys.modules)
    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def from_a_wheel(monkeypatch, tmp_path):
    """As if the package lay in site-packages."""
    monkeypatch.setattr(reproduce, "__file__", str(tmp_path / "site-packages" / "torchlift" / "reproduce.py"))


def test_the_entries_of_the_checkout_are_listed_by_paper(run):
    entries = json.loads(run("reproduce --json").out)["entries"]
    assert {"table2", "table3", "one-shot-pruning", "lifted-model", "search-text"} <= set(entries)
    assert all(entries.values()), "an entry without a docstring"
    shown = run("reproduce").out.splitlines()
    line = next(line for line in shown if line.split()[:1] == ["table3"])
    assert line.endswith(entries["table3"])
    assert shown.index("neural_lifting") < shown.index(line)


def test_every_entry_that_a_document_names_is_there():
    entries = reproduce.find_entries(ROOT / "papers")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "papers").rglob("*.py")]
    named = re.findall(r"`(?:torchlift )?reproduce ([\w-]+)", " ".join(page.read_text() for page in pages))
    assert len(named) > 20
    assert set(named) <= set(entries)


def test_every_recorded_reproduction_has_its_entry():
    entries = reproduce.find_entries(ROOT / "papers")
    records = {
        path: json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob("*.json")
    }
    recorded = {
        re.sub("^torchlift reproduce (\\S+).*", r"\1", record["command"])
        if record.get("command", "").startswith("torchlift reproduce")
        else path.stem.replace("_", "-")
        for path, record in records.items()
        if "source" in record
    }
    assert len(recorded) > 20
    assert recorded <= set(entries)


@pytest.mark.usefixtures("from_a_wheel")
def test_an_entry_runs_with_what_was_chosen(run, papers, tmp_path):
    papers()
    ran = run("reproduce my-table --papers tables --out r --seeds 2 --data here --epochs 0.5")
    assert ran.code == 0, ran.err
    assert "as claimed" in ran.out
    record = json.loads((tmp_path / "r" / "my-table.json").read_text())
    assert record["rows"] == [["r", "here", 2, 0.5, 7, None]]
    assert "as claimed" in (tmp_path / "r" / "my-table.html").read_text()


@pytest.mark.usefixtures("from_a_wheel")
def test_jobs_that_find_nothing_to_share_say_so(run, papers):
    papers()
    assert "my-table has no new runs to share" in run("reproduce my-table --papers tables --jobs 2").err
    assert "share" not in run("reproduce my-table --papers tables").err


@pytest.mark.usefixtures("from_a_wheel")
def test_what_is_not_chosen_is_left_to_the_entry(run, papers):
    papers()
    said = json.loads(run("reproduce my-table --papers tables --json").out)
    assert said["rows"] == [["runs/reproduce", None, 1, 1.0, 7, None]]
    assert said["page"] == "runs/reproduce/my-table.html"


@pytest.mark.usefixtures("from_a_wheel")
def test_papers_in_the_current_folder_are_found_unasked(run, papers):
    papers("papers")
    assert json.loads(run("reproduce --json").out)["entries"] == {"my-table": "A table."}


def test_a_folder_of_documents_does_not_hide_the_checkout(run, tmp_path):
    (tmp_path / "papers" / "reading").mkdir(parents=True)
    (tmp_path / "papers" / "reading" / "helper.py").write_text("x = 1\n")
    assert "table3" in run("reproduce").out


@pytest.mark.usefixtures("from_a_wheel")
@pytest.mark.parametrize("command", ["reproduce", "reproduce table3"])
def test_without_papers_the_way_out_is_named(fails, command):
    fails(command, "no papers/ here", "clone the repository", "--papers DIR")


def test_folders_that_are_none_or_hold_none_fail(fails, tmp_path):
    fails("reproduce --papers nowhere", "nowhere", "no such folder")
    (tmp_path / "empty").mkdir()
    fails("reproduce --papers empty", "empty", "run(out, …)")


def test_two_entries_of_one_name_fail(fails, papers):
    folder = papers()
    (folder / "shared" / "my_table.py").write_text("def run(): ...\n")
    fails("reproduce --papers tables", "my-table", "a_paper", "shared")


def test_a_file_that_is_no_python_is_named(fails, papers):
    (papers() / "shared" / "broken.py").write_text("def (\n")
    fails("reproduce --papers tables", "broken.py", "not Python")


def test_a_result_without_its_parts_fails(fails, papers):
    papers(entry="def run(out): return {{'title': 'T', 'rows': []}}\n")
    fails("reproduce my-table --papers tables", "my_table.py", "finding, columns")


def test_a_folder_that_python_cannot_import_fails(fails, papers):
    papers("my-papers", entry="def run(out): ...\n")
    fails("reproduce my-table --papers my-papers", "my-papers.a_paper.my_table", "rename")


@pytest.mark.parametrize("path", [None, ["/elsewhere/tables"]])
def test_a_name_that_is_taken_fails(fails, papers, monkeypatch, path):
    papers()
    other = ModuleType("tables")
    other.__file__ = "/elsewhere/tables.py"
    if path:
        other.__path__ = path
    monkeypatch.setitem(sys.modules, "tables", other)
    fails("reproduce my-table --papers tables", "/elsewhere/tables.py", "rename the folder")
