"""Write docs/results.md: every table and figure of the sources, and whether it was reproduced.

python benchmarks/page.py
"""

import base64
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.pictures import draw  # noqa: E402  (after the path)
from papers.common import verdict as rule  # noqa: E402  (after the path)
from papers.common.protocol import Protocol, every_protocol  # noqa: E402  (after the path)
from papers.common.verdict import Verdict, value, verdict  # noqa: E402  (after the path)

RESULTS, PAGE, PICTURES = (
    ROOT / "benchmarks" / "results",
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "images",
)
SOURCES = {
    "neural_lifting": "Neural Lifting",
    "lifted_networks": "Askari, Negiar, Sambharya, El Ghaoui: Lifted Neural Networks",
    "savarese_thesis": "Savarese: Principled Approximation Methods",
    "unified_lifting": "A Unified Framework for Lifted Training and Inversion Approaches",
    "embedding_principle": "Bai, Luo, Xu, Zhang: Embedding Principle in Depth",
}
WORDS = ("reproduced", "partly", "not reproduced", "not run")


def records() -> dict[str, Any]:
    """What was recorded, by the name of the entry."""
    by_entry = {
        path.stem.replace("_", "-"): json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))
    }
    return {
        name: one
        for name, one in by_entry.items()
        if isinstance(one, dict) and {"finding", "source"} <= one.keys()
    }


def page(recorded: Mapping[str, Any], pictures: Path | None = None) -> str:
    """The rule, a table of all verdicts, then each experiment with its numbers."""
    listed = [(one, verdict(one, recorded.get(one.record or one.entry or ""))) for one in every_protocol()]
    counts = {word: sum(said.word == word for _, said in listed) for word in WORDS}
    counted = ", ".join(f"{number} {word}" for word, number in counts.items())
    blocks = [
        f"# What reproduced, and what did not\n\n{len(listed)} tables and figures: {counted}.\n",
        f"## The rule\n\n{inspect.cleandoc(rule.__doc__ or '')}\n",
        "Commands read data from `--data` or `TORCHLIFT_DATA`; all records were made on two CPU cores. "
        "`python benchmarks/page.py` writes this page from `benchmarks/results` and "
        "`papers/*/protocols.toml`.\n",
    ]
    shown: set[str] = set()
    for folder, title in SOURCES.items():
        mine = [(one, said) for one, said in listed if one.source == folder]
        blocks += [f"## {title}\n", overview(mine)]
        for one, said in mine:
            if one.entry is not None and (record := recorded.get(one.record or one.entry)) is not None:
                shown.add(one.record or one.entry)
                blocks.append(section(one, said, record, one.record or one.entry, pictures))
    blocks.append("## Questions of our own\n")
    blocks += [own(name, record) for name, record in recorded.items() if name not in shown]
    return "\n".join(blocks)


def overview(rows: Iterable[tuple[Protocol, Verdict]]) -> str:
    """One line for each table and figure."""
    lines = ["| | what it says | verdict | why |", "|---|---|---|---|"]
    lines += [f"| {one.id} | {one.claim} | **{said.word}** | {said.why} |" for one, said in rows]
    return "\n".join(lines) + "\n"


def section(
    published: Protocol, said: Verdict, record: Mapping[str, Any], name: str, pictures: Path | None
) -> str:
    """One experiment: what was published beside what was measured."""
    lines = [f"### {published.id}: {said.word}\n", f"{published.claim} ({published.where}).\n"]
    if said.checks and not record.get("stand_in"):
        marks = {True: "holds", False: "does not hold", None: "not measured"}
        lines += ["| claim | ours | |", "|---|---|---|"]
        lines += [f"| {one.claim} | {one.said} | {marks[one.holds]} |" for one in said.checks] + [""]
    if published.printed and not record.get("stand_in"):
        lines += ["| number | paper | ours |", "|---|---|---|"]
        lines += [
            f"| {one['what']} | {one['value']} | {beside(record, one)} |" for one in published.printed
        ] + [""]
    lines += [f"{sentence(record['finding'])}\n"]
    if pictures is not None and (names := draw(record, name, pictures)):
        light, dark = (f"images/{pictures.name}/{one}" for one in names)
        lines += [
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img alt="{published.id}" src="{light}"></picture>\n'
        ]
    if pictures is not None and record.get("images"):
        lines += image_table(record["images"], name, pictures)
    lines += list(details(published, record))
    return "\n".join(lines) + "\n"


def image_table(images: Iterable[Mapping[str, str]], name: str, pictures: Path) -> Iterator[str]:
    """The images of a record side by side, written as PNG files."""
    pictures.mkdir(parents=True, exist_ok=True)
    shown = {f"{name}-{number}.png": image for number, image in enumerate(images, 1)}
    for file, image in shown.items():
        (pictures / file).write_bytes(base64.b64decode(image["png"]))
    yield "| " + " | ".join(image["name"] for image in shown.values()) + " |"
    yield "|---" * len(shown) + "|"
    yield "| " + " | ".join(f"![{i['name']}](images/{pictures.name}/{f})" for f, i in shown.items()) + " |\n"


def beside(record: Mapping[str, Any], printed: Mapping[str, Any]) -> str:
    """Our number for a printed one, or a dash."""
    ours = value(record, printed["ours"]) if "ours" in printed else None
    return "–" if ours is None else str(ours)


def details(published: Protocol, record: Mapping[str, Any]) -> Iterator[str]:
    """Protocol, scale, seeds and command."""
    network = f"{published.network}; {published.data}" if published.network else ""
    length = f"{published.epochs:,g} epochs" if published.epochs else ""
    setting = "; ".join(one for one in (network, published.training, published.grid, length) if one)
    yield f"- as published: {setting}"
    yield from facts(record)


def facts(record: Mapping[str, Any]) -> Iterator[str]:
    """Of a record: its scale, its seeds, what made it."""
    seeds = len(record.get("seeds") or [])
    stand_in = "a stand-in, not the paper's experiment: " if record.get("stand_in") else ""
    yield f"- measured: {stand_in}{record['scale']}; {seeds} seed{'s' if seeds != 1 else ''}"
    if "partial" in record:
        yield f"- partial: {record['partial']}"
    if "command" in record:
        yield f"- `{record['command']}`"
    else:
        yield "- made by an earlier form of the entry: no command makes it again"


def own(name: str, record: Mapping[str, Any]) -> str:
    """A record that belongs to no table of a source."""
    lines = [f"### {record['title']}\n", f"{sentence(record['finding'])}\n", *facts(record)]
    return "\n".join(lines if "command" in record else [*lines, f"- entry `{name}`"]) + "\n"


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


if __name__ == "__main__":
    PAGE.write_text(page(records(), PICTURES / "results"))
