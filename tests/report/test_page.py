"""What a page draws of each kind of block, as it stands in the HTML."""

import json
import math
import re
from itertools import pairwise

import pytest

from torchlift import report

nan = math.nan


def drawn(block):
    """The HTML of a block, on one line, with ordinary spaces."""
    page = report.render(report.Page("t", sections=[report.Section("s", [block])]))
    body = page[page.index("<main") : page.index("</main>")]
    return re.sub(r"\s+", " ", body.replace("\N{NO-BREAK SPACE}", " "))


def fractions(text):
    """Percentages as they stand in attributes."""
    return [float(value) / 100 for value in re.findall(r'="([\d.]+)%"', text)]


def data_of(block):
    """What the page's script reads."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', drawn(block))[1])


def test_mismatched_data_raises_one_line():
    with pytest.raises(ValueError, match="Line 'a': x, y and the band"):
        report.Line("a", [1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="Line 'a'"):
        report.Line("a", [1.0], [1.0], low=[0.0])
    with pytest.raises(ValueError, match="Points 'a'"):
        report.Points("a", [1.0], [1.0], labels=["x", "y"])
    with pytest.raises(ValueError, match="row 1 has 1 cells for 2 columns"):
        report.Table([report.Column("a"), report.Column("b")], [["x", 1], ["y"]])
    with pytest.raises(ValueError, match="Bars: 's' has 2 values for 1 names"):
        report.Bars(["a"], {"s": [1.0, 2.0]})
    with pytest.raises(ValueError, match="Heatmap: values of shape"):
        report.Heatmap(["a"], ["b"], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="not a PNG"):
        report.Image(b"GIF89a", "picture")


def test_a_table_marks_its_best_aligns_numbers_and_keeps_sort_keys():
    columns = [
        report.Column("who", align="left"),
        report.Column("score", best="high"),
        report.Column("n", "count"),
    ]
    rows = [["a", report.Spread(0.7412, 0.0042), 10], ["b", report.Spread(0.7555, 0.0017), None]]
    cells = re.findall(
        r'class="(\w+)( best)?" data-key="([^"]*)">([^<]*)<', drawn(report.Table(columns, rows))
    )
    assert [text for *_, text in cells] == ["a", "0.7412 ± 0.0042", "10", "b", "0.7555 ± 0.0017", "–"]
    assert [align for align, *_ in cells] == ["left", "right", "right"] * 2
    assert [bool(best) for _, best, *_ in cells] == [False] * 4 + [True, False]
    assert [key for *_, key, _ in cells][2::3] == ["10.0", ""]


def test_cards_tell_the_change_and_whether_it_is_welcome():
    cards = [
        report.Card("params", 21_000, "count", other=70_000, better="lower"),
        report.Card("accuracy", 0.8, other=0.9, better="higher"),
        report.Card("bits", 8, other=8, better="lower"),
        report.Card("macs", 900, "count", other=100),
    ]
    changes = re.findall(r'<span class="change (\w*)">([^<]*)<', drawn(report.Cards(cards)))
    assert [text.strip() for _, text in changes] == ["▼ −70 %", "▼ −11 %", "unchanged", "▲ 9.0×"]
    assert [kind for kind, _ in changes] == ["good", "bad", "", ""]


def test_a_chart_draws_gaps_bands_and_phases():
    line = report.Line("loss", [0, 1, 2, 3], [4.0, nan, 2.0, 1.0], [3, nan, 1, 0], [5, nan, 3, 2])
    phases = [report.Phase(0, 2, "a"), report.Phase(2, 2, "none"), report.Phase(2, 4, "b")]
    chart = report.Chart([line], phases=phases)
    html = drawn(chart)
    (band,), (stroke,) = (
        re.findall(rf'<path class="{kind}" d="([^"]*)"', html) for kind in ("band", "stroke")
    )
    assert (stroke.count("M"), band.count("Z")) == (2, 2)
    spans = re.findall(r'style="left:([\d.]+)%;width:([\d.]+)%" title="(\w+)"', html)
    assert [(float(at), float(width), label) for at, width, label in spans] == [(0, 50, "a"), (50, 50, "b")]
    assert data_of(chart)["series"][0]["y"] == [4.0, None, 2.0, 1.0]


def test_thousands_of_points_stay_a_small_file():
    line = report.Line("walk", list(map(float, range(100_000))), [math.sin(k / 500) for k in range(100_000)])
    text = report.render(report.Page("t", sections=[report.Section("s", [report.Chart([line])])]))
    assert len(text) < 80_000


def test_neighboring_series_differ_in_more_than_color():
    lines = [report.Line(str(k), [0.0, 1.0], [k, k + 1.0]) for k in range(12)]
    looks = re.findall(r'<g data-series="\d+" class="c(\d+) d(\d+)">', drawn(report.Chart(lines)))
    assert len(set(looks)) == 12
    assert all(a[1] != b[1] for a, b in pairwise(looks))


def test_scatter_leaves_out_what_a_log_axis_cannot_show():
    points = report.Points("p", [0.0, 1.0, 10.0], [1.0, 2.0, 3.0], x_error=[0.0, 2.0, 1.0])
    html = drawn(report.Scatter([points], log_x=True))
    assert html.count('<use class="spot"') == 2
    assert html.count('<line class="whisker"') == 1  # one less its error is below nothing


def test_a_small_number_beside_a_large_one_is_not_shown_as_nothing():
    losses = report.Table([report.Column("loss")], [[25_498.0], [0.0705]])
    assert re.findall(r'data-key="[^"]+">([^<]*)<', drawn(losses)) == ["25,498", "0.07050"]


def test_dots_bars_and_heat_maps_place_their_values():
    html = drawn(report.Dots([report.DotRow("a", [1.0, 3.0, nan], 1.5, 2.5)], reference=2.0))
    mean, reference, whisker = (
        fractions(re.search(rf'<line class="{kind}"[^>]*>', html)[0])[:2]
        for kind in ("mean", "reference", "whisker")
    )
    assert mean[0] == reference[0] == pytest.approx(sum(whisker) / 2)
    assert html.count("<circle") == 2
    bars = re.findall(r'<rect class="fill"[^>]*>', drawn(report.Bars(["a", "b"], {"s": [-1.0, 3.0]})))
    assert [fractions(bar)[:2] for bar in bars] == [[0.0, 0.25], [0.25, 0.75]]
    html = drawn(report.Heatmap(["r"], ["a", "b"], [[1.0, nan]], best="high"))
    assert re.findall(r'<td class="(\w*)"[^>]*>([^<]*)<', html) == [("best", "1"), ("", "–")]


def test_nested_settings_become_dotted_keys():
    html = drawn(report.KeyValues({"optimizer": {"lr": 0.05}, "betas": (0.9, 0.99), "none": {}}))
    items = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', html)
    assert items == [("optimizer.lr", "0.05"), ("betas", "(0.9, 0.99)"), ("none", "{}")]


@pytest.mark.parametrize(
    "block",
    [
        report.Chart([]),
        report.Chart([report.Line("a", [], [])]),
        report.Chart([report.Line("a", [0.0], [nan])], log_x=True, log_y=True),
        report.Scatter([]),
        report.Dots([]),
        report.Dots([report.DotRow("a", [nan])]),
        report.Bars([], {}),
        report.Bars(["a"], {"s": [nan]}),
        report.Heatmap(["a"], ["b"], [[nan]], best="low"),
        report.Table([report.Column("a")], []),
        report.Cards([report.Card("a", None)]),
        report.Details("d", []),
    ],
)
def test_empty_and_missing_data_render(block):
    assert "<h2" in report.render(report.Page("t", sections=[report.Section("s", [block])]))


def test_seeds_that_tie_stand_above_one_another():
    html = drawn(report.Dots([report.DotRow("a", [0.5, 0.7, 0.5, 0.5])]))
    up = re.findall(r'<circle class="spot"(?: transform="translate\(0 ([^)]+)\)")?', html)
    assert [float(value or 0) for value in up] == [-5, 0, 0, 5]
