"""Figures as SVG files: well-formed, in both sets of colors, with every value where it belongs."""

import re
from xml.etree import ElementTree

import pytest

from torchlift.report import Bars, Chart, Line, Points, Scatter, beside, svg

LINES = [Line("a < b", [0, 1, 2], [1, 2, 3]), Line("band", [0, 2], [1, 2], [0, 1], [2, 3])]
CHART = Chart(LINES, title="T & U")
SCATTER = Scatter([Points(str(k), [1, 10], [k, k + 1], y_error=[0.1, 0.1]) for k in range(9)], log_x=True)
BARS = Bars(["before", "after"], {"bytes": [4000.0, 1000.0]}, form="bytes", title="File")


@pytest.mark.parametrize("figure", [CHART, SCATTER, BARS], ids=["chart", "scatter", "bars"])
def test_files_are_well_formed_and_know_both_themes(figure):
    text = svg(figure)
    ElementTree.fromstring(text)
    light, dark = (
        dict(re.findall(r"--(\w+):(#\w{6})", block)) for block in re.findall(r":root{([^}]*)}", text)
    )
    assert light.keys() == dark.keys() >= set(re.findall(r"var\(--(\w+)\)", text))
    assert "prefers-color-scheme:dark" in text
    assert light["ink"] != dark["ink"]


def test_bars_are_as_long_as_their_values():
    lengths = [float(w) for w in re.findall(r'<rect [^>]*width="([0-9.]+)"', svg(BARS))]
    assert lengths[0] / lengths[1] == pytest.approx(4, rel=0.01)


def test_every_series_is_drawn_and_named():
    text = svg(SCATTER)
    for k in range(9):
        assert f">{k}</text>" in text
    assert text.count("<circle") + text.count("<polygon") == 2 * 9 + 9  # two points each, and the legend


def test_figures_stand_beside_one_another():
    root = ElementTree.fromstring(beside([BARS, BARS, BARS], 600))
    offsets = [child.get("x") for child in root if child.tag.endswith("svg")]
    assert offsets == ["0", "200", "400"]
