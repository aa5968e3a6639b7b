"""Sphinx settings: MyST pages, API pages from docstrings, warnings are errors (``make docs``)."""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import torchlift

project = "torchlift"
author = "the torchlift authors"
version = release = torchlift.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_show_copyright = False
html_title = "torchlift"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True


def importable(name: str) -> bool:
    """Whether there is such a module."""
    return importlib.util.find_spec(name) is not None


pages = sorted((Path(__file__).parent / "api").glob("torchlift.*.md"))
exclude_patterns = ["_build", *(f"api/{page.name}" for page in pages if not importable(page.stem))]


def as_text(lines: list[str]) -> list[str]:
    """Docstrings are plain text with code in backticks: paragraphs stay, laid-out lines keep their breaks.

    A glob such as ``*weight`` or a norm such as |x| must not be read as markup.
    """
    rendered: list[str] = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        rows = paragraph.splitlines()
        laid_out = any(re.match(r"\s|[-*] |\d+\. ", row) or re.search(r"\S {3,}\S", row) for row in rows)
        rendered += [("| " if laid_out else "") + escaped(row) for row in rows] + [""]
    return rendered


def escaped(row: str) -> str:
    """One line of reStructuredText that shows the line as it is: code set as code, roles as links."""
    pieces = re.split(r"(:\w+:`[^`]+`|``[^`]+``|`[^`]+`)", row)
    for index, piece in enumerate(pieces):
        if index % 2:
            code = piece.split("`", 1)[1].strip("`")
            pieces[index] = (f":py:obj:`{code}`" if piece.startswith(":") else f"``{code}``") + "\\ "
        else:
            pieces[index] = re.sub(r"([\\*_|`])", r"\\\1", piece)
    return "".join(pieces).rstrip()


def on_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Hand every docstring to autodoc as text."""
    del app, what, name, obj, options
    lines[:] = as_text(lines)


def homes() -> dict[str, str]:
    """Where a name is documented, by where it is defined and by its short name on ``torchlift``."""
    found: dict[str, str] = {}
    for page in pages:
        if importable(page.stem):
            module = importlib.import_module(page.stem)
            for name in getattr(module, "__all__", ()):
                value = getattr(module, name)
                defined = f"{getattr(value, '__module__', page.stem)}.{getattr(value, '__qualname__', name)}"
                found[defined] = f"{page.stem}.{name}"
                if name in torchlift.__all__ and getattr(torchlift, name) is value:
                    found[f"torchlift.{name}"] = f"{page.stem}.{name}"
    return found


def on_missing(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Node) -> nodes.Node | None:
    """A link to the page on which a package exports what one of its files defines."""
    target = HOMES.get(node["reftarget"]) or HOMES.get(f"torchlift.{node['reftarget']}")
    if target is None or node.get("refdomain") != "py":
        return None
    here, domain = node["refdoc"], env.get_domain("py")
    return domain.resolve_xref(env, here, app.builder, "obj", target, node, text)


def on_finished(app: Sphinx, failed: Exception | None) -> None:
    """Copy the pictures: pages name some in HTML of their own, which Sphinx does not read."""
    if failed is None:
        shutil.copytree(Path(app.srcdir) / "images", Path(app.outdir) / "images", dirs_exist_ok=True)


HOMES = homes()


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("missing-reference", on_missing)
    app.connect("build-finished", on_finished)
