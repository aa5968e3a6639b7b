"""Markdown, a little of it: paragraphs, ``- `` lists, `code`, **strong**, *emphasis*; all else is escaped."""

import re
from html import escape

_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![\w*])")


def to_html(text: str) -> str:
    """Safe HTML of a text: escaped first, marked up after."""
    blocks = (block.strip("\n") for block in re.split(r"\n\s*\n", text.strip()))
    return "\n".join(_block(block) for block in blocks if block.strip())


def _block(block: str) -> str:
    lines = [line.strip() for line in block.splitlines()]
    if all(line.startswith("- ") for line in lines):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(text: str) -> str:
    """Odd pieces between back-ticks are code and keep their stars."""
    pieces = _CODE.split(escape(text))
    return "".join(
        f"<code>{piece}</code>"
        if number % 2
        else _EMPHASIS.sub(r"<em>\1</em>", _STRONG.sub(r"<strong>\1</strong>", piece))
        for number, piece in enumerate(pieces)
    )
