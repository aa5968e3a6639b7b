"""Draw the pictures of the pages: ``python docs/drawings.py`` writes ``docs/images/*.svg``."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from torchlift.report.standalone import document, text

IMAGES = Path(__file__).parent / "images"
HEAD = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0L8,4L0,8Z" fill="var(--muted)"/></marker></defs>'
)


def network(x: float, y: float, layers: Sequence[int], extra: Sequence[int] = (), size: float = 5.0) -> str:
    """Layers of units, every unit joined to all of the next layer; ``extra`` layers are the lifted ones."""
    places = [
        [(x + 34.0 * column, y + 19.0 * (row - (units - 1) / 2)) for row in range(units)]
        for column, units in enumerate(layers)
    ]
    lines = [
        f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="var(--muted)" stroke-opacity="0.35"/>'
        for here, there in itertools.pairwise(places)
        for a, b in here
        for c, d in there
    ]
    units = [
        f'<circle cx="{a}" cy="{b}" r="{size}" fill="var(--s{int(column in extra)})"/>'
        for column, here in enumerate(places)
        for a, b in here
    ]
    return "".join(lines + units)


def arrow(x0: float, x1: float, y: float, word: str) -> str:
    """An arrow to the right with a word above it."""
    ends = f'x1="{x0}" y1="{y}" x2="{x1}" y2="{y}"'
    line = f'<line {ends} stroke="var(--muted)" stroke-width="2" marker-end="url(#tip)"/>'
    return line + text((x0 + x1) / 2, y - 8, word, "middle", 'font-weight="600"')


def idea() -> str:
    """min f(w) → lift → min F(u) → fit → u* → project → w*."""
    y, body = 70.0, [HEAD, '<g transform="translate(24 0)">']
    body += [network(30, y, (3, 2, 2)), arrow(118, 196, y, "lift")]
    body += [network(214, y, (3, 2, 5, 2), (2,)), arrow(336, 414, y, "optimize")]
    body += [network(432, y, (3, 2, 5, 2), (2,), 6.5), arrow(554, 632, y, "project")]
    body += [network(650, y, (3, 2, 2), (), 6.5)]
    captions = (
        (64, "the network you want"),
        (265, "a larger problem, same start"),
        (483, "solved there"),
        (684, "plain and small again"),
    )
    body += [text(x, 158, words, "middle", 'fill="var(--muted)"') for x, words in captions]
    body.append("</g>")
    return document(800, 170, body, "lift, optimize, project: a small problem is solved in a larger space")


DRAWINGS = {"idea": idea}


def main() -> None:
    """Write all of them."""
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw() + "\n")


if __name__ == "__main__":
    main()
