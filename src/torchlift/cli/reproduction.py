"""Reproductions by name: how an entry is found and run. The entries live beside the package, not in it.

A folder of papers holds one folder per source. A file ``papers/<paper>/<entry>.py`` that defines

    run(out, data=None, seeds=None, epochs=None, images=None, device=None) -> dict

is an entry: its name is the file's with hyphens, its title the first line of the file's docstring. ``out``
is the folder to work in, ``data`` the folder of data sets; the others make less of the source's experiment,
and an entry names those it takes. The dict holds ``title``, ``finding``, ``columns`` and ``rows``, and for
its page ``source``, ``scale``, ``seeds``, ``machine``, ``curves``, ``notes``; the ``command`` that made it is
added. Files are read, not imported, until an entry runs.
"""

import ast
import dataclasses
import importlib
import inspect
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REQUIRED = ("title", "finding", "columns", "rows")
CLONE = "clone the repository of torchlift and run this inside it, or pass --papers DIR"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One result that can be measured again."""

    name: str
    title: str
    file: Path

    @property
    def paper(self) -> str:
        """The folder of its source."""
        return self.file.parent.name

    def run(self, out: Path, **settings: Any) -> dict[str, Any]:
        """Import the file and measure with the settings that were chosen."""
        run = imported(self.file).run
        accepted = [name for name in inspect.signature(run).parameters if name != "out"]
        for name in settings:
            if name not in accepted:
                taken = ", ".join(map(option_name, accepted)) or "nothing"
                raise ValueError(f"{self.name} does not take {option_name(name)}; it takes {taken}")
        result: Any = run(out=out, **settings)
        missing = [key for key in REQUIRED if key not in result] if isinstance(result, dict) else REQUIRED
        if missing:
            raise ValueError(f"{self.file}: run() must return a dict with {', '.join(missing)}")
        return result | {"command": self.command(settings)}

    def command(self, settings: Mapping[str, Any]) -> str:
        """What makes the same record again, wherever data and results are kept."""
        words = ["torchlift", "reproduce", self.name]
        for name, value in settings.items():
            if name not in ("data", "device") and value is not False:
                words += (
                    [option_name(name)]
                    if value is True
                    else [option_name(name), f"{value:g}" if isinstance(value, float) else str(value)]
                )
        return shlex.join(words)


def option_name(name: str) -> str:
    """The option of the command line that sets this argument."""
    return f"--{name.replace('_', '-')}"


def find_entries(papers: Path | None = None) -> dict[str, Entry]:
    """All entries by name: of ``papers``, else of the first folder that has any.

    Looked through are ``papers`` in the current folder and, where the package is used from a checkout of its
    repository, the checkout's.
    """
    if papers is not None and not papers.is_dir():
        raise ValueError(f"--papers {papers}: there is no such folder")
    folders = [papers] if papers is not None else [Path("papers"), *checkout_papers()]
    for folder in folders:
        if entries := entries_of(folder.resolve()):
            return entries
    if papers is not None:
        raise ValueError(f"--papers {papers}: no file in its folders defines run(out, …)")
    raise ValueError(f"no papers/ here, and the installed package holds no reproductions: {CLONE}")


def checkout_papers() -> list[Path]:
    """The papers of the checkout this file is in; none where it was installed from a wheel."""
    source = Path(__file__).resolve().parents[2]
    papers = source.parent / "papers"
    return [papers] if source.name == "src" and papers.is_dir() else []


def entries_of(folder: Path) -> dict[str, Entry]:
    """The entries of one folder of papers; a name may occur once."""
    entries: dict[str, Entry] = {}
    for entry in read_entries(folder):
        if entry.name in entries:
            raise ValueError(f"two entries are called {entry.name}: {entry.file}, {entries[entry.name].file}")
        entries[entry.name] = entry
    return entries


def read_entries(folder: Path) -> Iterator[Entry]:
    """What the files say of themselves."""
    for file in sorted(folder.glob("*/*.py")):
        try:
            tree = ast.parse(file.read_text(), file.name)
        except (SyntaxError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not Python: {error}") from error
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            title = (ast.get_docstring(tree) or "").split("\n")[0]
            yield Entry(file.stem.replace("_", "-"), title, file)


def imported(file: Path) -> Any:
    """The module ``papers.<paper>.<entry>``, the name by which files of this folder import each other."""
    paper, papers = file.parent, file.parent.parent
    name = f"{papers.name}.{paper.name}.{file.stem}"
    if not all(step.isidentifier() for step in name.split(".")):
        raise ValueError(f"{file}: Python cannot import {name}; rename what is not an identifier")
    if str(papers.parent) not in sys.path:
        sys.path.insert(0, str(papers.parent))
    root: Any = importlib.import_module(papers.name)
    homes = [Path(home).resolve() for home in getattr(root, "__path__", ())]
    if homes[:1] != [papers.resolve()]:
        raise ValueError(f"{papers}: the name {papers.name} is taken by {root}; rename the folder")
    return importlib.import_module(name)
