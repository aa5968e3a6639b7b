"""Draw the pictures of the pages: ``python docs/drawings.py`` writes ``docs/images/*.svg``."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from torchlift.report.standalone import document, text

IMAGES = Path(__file__).parent / "images"
WIDE = 20.0
"""Type of a picture as wide as a page, which telephones shrink to half."""
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


def arrow(x0: float, x1: float, y: float, word: str, size: float = 12.0) -> str:
    """An arrow to the right with a word above it."""
    ends = f'x1="{x0}" y1="{y}" x2="{x1}" y2="{y}"'
    line = f'<line {ends} stroke="var(--muted)" stroke-width="2" marker-end="url(#tip)"/>'
    return line + text((x0 + x1) / 2, y - 8, word, "middle", f'font-size="{size:g}" font-weight="600"')


def idea() -> str:
    """min f(w) → lift → min F(u) → fit → u* → project → w*."""
    y, body = 70.0, [HEAD, '<g transform="translate(24 0)">']
    body += [network(30, y, (3, 2, 2)), arrow(118, 196, y, "lift", 0.8 * WIDE)]
    body += [network(214, y, (3, 2, 5, 2), (2,)), arrow(336, 414, y, "optimize", 0.8 * WIDE)]
    body += [network(432, y, (3, 2, 5, 2), (2,), 6.5), arrow(554, 632, y, "project", 0.8 * WIDE)]
    body += [network(650, y, (3, 2, 2), (), 6.5)]
    captions = (
        (64, "the network", "you want"),
        (265, "a larger problem,", "same start"),
        (483, "solved", "there"),
        (684, "plain and", "small again"),
    )
    for x, *lines in captions:
        for number, words in enumerate(lines):
            style = f'font-size="{WIDE:g}" fill="var(--muted)"'
            body.append(text(x, 160 + 26 * number, words, "middle", style))
    body.append("</g>")
    return document(800, 200, body, "lift, optimize, project: a small problem is solved in a larger space")


def cells(x: float, y: float, shades: Sequence[Sequence[float]], size: float = 16.0) -> str:
    """A weight as squares, as dark as their values; nothing where a value is 0."""
    return "".join(
        f'<rect x="{x + size * column}" y="{y + size * row}" width="{size - 2}" height="{size - 2}" '
        f'rx="2" fill="var(--s0)" fill-opacity="{value}" stroke="var(--line)"/>'
        for row, values in enumerate(shades)
        for column, value in enumerate(values)
    )


def box(x: float, y: float, words: str, color: str = "s0", width: float = 46.0) -> str:
    """A layer."""
    size = f'width="{width}" height="26" rx="5"'
    frame = f'<rect x="{x}" y="{y}" {size} fill="none" stroke="var(--{color})" stroke-width="2"/>'
    return frame + text(x + width / 2, y + 17, words, "middle")


WEIGHT = ((0.9, 0.2, 0.5, 0.1), (0.3, 0.8, 0.1, 0.6), (0.1, 0.4, 0.95, 0.2), (0.7, 0.15, 0.3, 0.85))


def masked() -> str:
    """Soft gates become steps."""
    kept = [[value if value > 0.35 else 0.0 for value in row] for row in WEIGHT]
    return cells(20, 40, WEIGHT) + arrow(94, 140, 70, "") + cells(150, 40, kept)


def rounded() -> str:
    """Noise as wide as the grid it can bear."""
    grid = [[round(3 * value) / 3 for value in row] for row in WEIGHT]
    return cells(20, 40, WEIGHT) + arrow(94, 140, 70, "") + cells(150, 40, grid)


def narrowed() -> str:
    """Channels that are really gone."""
    return network(24, 70, (3, 4, 3), (), 5) + arrow(108, 146, 70, "") + network(160, 70, (3, 2, 3), (), 5)


def folded() -> str:
    """A norm that training had, multiplied into the layer."""
    before = box(14, 32, "layer") + box(14, 66, "norm", "s1")
    return before + arrow(70, 120, 62, "") + box(130, 49, "layer")


def shared() -> str:
    """Layers that became alike are one, used several times."""
    before = "".join(box(14, 24 + 32 * k, f"layer {k + 1}", width=58) for k in range(3))
    style = 'fill="none" stroke="var(--muted)" stroke-width="2" marker-end="url(#tip)"'
    loop = f'<path d="M206,64c26,-30 26,50 0,20" {style}/>'
    return before + arrow(82, 128, 70, "") + box(138, 57, "layer", width=62) + loop


def methods() -> str:
    """Five of the ways back."""
    panels = {
        "masks: threshold": masked,
        "bits: round": rounded,
        "channels: cut": narrowed,
        "norms: fold": folded,
        "sharing: one for many": shared,
    }
    body = [HEAD]
    for place, (title, draw) in enumerate(panels.items()):
        body += [f'<g transform="translate({20 + 250 * (place % 3)} {10 + 140 * (place // 3)})">']
        body += [text(14, 16, title, extra='font-weight="600"'), draw(), "</g>"]
    return document(790, 280, body, "masks, bits, channels, norms, sharing: how a lifted network comes back")


DRAWINGS = {"idea": idea, "methods": methods}


def main() -> None:
    """Write all of them."""
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw() + "\n")


if __name__ == "__main__":
    main()
