"""Colors as (light, dark) pairs: text at least 4.5 : 1, marks at least 3 : 1 on their surface.

The first six series differ in lightness as well as hue, so they stay apart for color-blind readers; every
series has a dash pattern and a marker of its own too. Heat maps use cividis (Nuñez, Anderton & Renslow,
2018), which looks nearly the same to readers with and without color-vision deficiency.
"""

from itertools import pairwise

SURFACES = {
    "page": ("#f4f6f8", "#0f141a"),
    "surface": ("#ffffff", "#171e27"),
    "ink": ("#18212c", "#e7ecf2"),
    "muted": ("#536071", "#9dabba"),
    "line": ("#dde3ea", "#2c3743"),
    "accent": ("#0b5fb5", "#7ab8ff"),
    "good": ("#00704f", "#46d3a0"),
    "bad": ("#b53a08", "#ff9b66"),
    "tint": ("#e9f1fb", "#1b2c40"),
    "warn": ("#fdf3df", "#332a17"),
}
SERIES = (
    ("#2368ed", "#aecffb"),
    ("#cd6c07", "#fa6349"),
    ("#00663b", "#69daa7"),
    ("#792a80", "#b977dd"),
    ("#7c4503", "#ebc972"),
    ("#1396a8", "#2eb3b8"),
    ("#b3124f", "#ff8fb8"),
    ("#5b6776", "#a9b5c2"),
)
CONTROL = 7
"""The series number of the control of a comparison: a quiet gray."""

CIVIDIS = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838")


def variables(dark: bool) -> dict[str, str]:
    """The CSS variables of one theme."""
    series = {f"s{number}": pair for number, pair in enumerate(SERIES)}
    return {name: pair[dark] for name, pair in (SURFACES | series).items()}


def heat(fraction: float) -> tuple[str, str]:
    """Cividis at ``fraction`` ∈ [0, 1], and the ink (black or white) that reads best on it."""
    position = min(max(fraction, 0.0), 1.0) * (len(CIVIDIS) - 1)
    index = min(int(position), len(CIVIDIS) - 2)
    low, high = list(pairwise(CIVIDIS))[index]
    mixed = tuple(round(a + (position - index) * (b - a)) for a, b in zip(rgb(low), rgb(high), strict=True))
    color = "#{:02x}{:02x}{:02x}".format(*mixed)
    return color, max("#000000", "#ffffff", key=lambda ink: contrast(ink, color))


def rgb(color: str) -> tuple[int, int, int]:
    """``#rrggbb`` as three bytes."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def contrast(first: str, second: str) -> float:
    """(L₁ + 0.05) / (L₂ + 0.05), the contrast ratio of WCAG 2.2, between 1 and 21."""
    dim, bright = sorted((_luminance(first), _luminance(second)))
    return (bright + 0.05) / (dim + 0.05)


def _luminance(color: str) -> float:
    shares = (channel / 255 for channel in rgb(color))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
