import math
from itertools import pairwise

import pytest

from torchlift import report
from torchlift.report.plots import chart_view
from torchlift.report.points import dots_view, scatter_view
from torchlift.report.tables import bars_view, cards_view, heatmap_view, keyvalues_view, table_view

nan = math.nan


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
    drawn = table_view(report.Table(columns, rows))["rows"]
    assert [[cell["text"] for cell in row] for row in drawn] == [
        ["a", "0.7412 ± 0.0042", "10"],
        ["b", "0.7555 ± 0.0017", "–"],
    ]
    assert [row[1]["best"] for row in drawn] == [False, True]
    assert [row[2]["key"] for row in drawn] == [10.0, ""]


def test_cards_tell_the_change_and_whether_it_is_welcome():
    cards = [
        report.Card("params", 21_000, "count", other=70_000, better="lower"),
        report.Card("accuracy", 0.8, other=0.9, better="higher"),
        report.Card("bits", 8, other=8, better="lower"),
        report.Card("macs", 900, "count", other=100),
    ]
    views = cards_view(report.Cards(cards))["cards"]
    assert [view["change"].replace("\N{NO-BREAK SPACE}", " ") for view in views] == [
        "▼ −70 %",
        "▼ −11 %",
        "unchanged",
        "▲ 9.0×",
    ]
    assert [view["good"] for view in views] == [True, False, None, None]


def test_a_chart_draws_gaps_bands_and_phases():
    line = report.Line("loss", [0, 1, 2, 3], [4.0, nan, 2.0, 1.0], [3, nan, 1, 0], [5, nan, 3, 2])
    view = chart_view(
        report.Chart(
            [line], phases=[report.Phase(0, 2, "a"), report.Phase(2, 2, "none"), report.Phase(2, 4, "b")]
        )
    )
    assert view["series"][0]["path"].count("M") == 2
    assert view["series"][0]["band"].count("Z") == 2
    assert [(phase["at"], phase["width"], phase["label"]) for phase in view["phases"]] == [
        (0, 0.5, "a"),
        (0.5, 0.5, "b"),
    ]
    assert view["data"]["series"][0]["y"] == [4.0, None, 2.0, 1.0]


def test_thousands_of_points_stay_a_small_file():
    line = report.Line("walk", list(map(float, range(100_000))), [math.sin(k / 500) for k in range(100_000)])
    text = report.render(report.Page("t", sections=[report.Section("s", [report.Chart([line])])]))
    assert len(text) < 80_000


def test_neighboring_series_differ_in_more_than_color():
    lines = [report.Line(str(k), [0.0, 1.0], [k, k + 1.0]) for k in range(12)]
    looks = [(one["color"], one["dash"]) for one in chart_view(report.Chart(lines))["series"]]
    assert len(set(looks)) == 12
    assert all(a[1] != b[1] for a, b in pairwise(looks))


def test_scatter_leaves_out_what_a_log_axis_cannot_show():
    points = report.Points("p", [0.0, 1.0, 10.0], [1.0, 2.0, 3.0], x_error=[0.0, 2.0, 1.0])
    spots = scatter_view(report.Scatter([points], log_x=True))["series"][0]["spots"]
    assert [spot["across"] is None for spot in spots] == [True, False]


def test_a_small_number_beside_a_large_one_is_not_shown_as_nothing():
    losses = report.Table([report.Column("loss")], [[25_498.0], [0.0705]])
    assert [cell["text"] for (cell,) in table_view(losses)["rows"]] == ["25,498", "0.07050"]


def test_dots_bars_and_heat_maps_place_their_values():
    dots = dots_view(report.Dots([report.DotRow("a", [1.0, 3.0, nan], 1.5, 2.5)], reference=2.0))
    assert dots["rows"][0]["mean"] == dots["reference"] == pytest.approx(sum(dots["rows"][0]["whisker"]) / 2)
    assert len(dots["rows"][0]["spots"]) == 2
    bars = bars_view(report.Bars(["a", "b"], {"s": [-1.0, 3.0]}))["rows"]
    assert [(bar["at"], bar["length"]) for _, (bar,) in bars] == [(0.0, 0.25), (0.25, 0.75)]
    cells = heatmap_view(report.Heatmap(["r"], ["a", "b"], [[1.0, nan]], best="high"))["rows"][0][1]
    assert [(cell["text"], cell["best"]) for cell in cells] == [("1", True), ("–", False)]


def test_nested_settings_become_dotted_keys():
    items = keyvalues_view(report.KeyValues({"optimizer": {"lr": 0.05}, "betas": (0.9, 0.99), "none": {}}))[
        "items"
    ]
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
    row = dots_view(report.Dots([report.DotRow("a", [0.5, 0.7, 0.5, 0.5])]))["rows"][0]
    assert [up for _, _, _, up in row["spots"]] == [-5, 0, 0, 5]
