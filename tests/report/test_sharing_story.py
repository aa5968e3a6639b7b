"""What a page tells of shared weights: layers alike, over time, and the folded network as loops."""

import re

import pytest
from page_blocks import shown

from torchlift import report
from torchlift.report import Heatmap, Loops


def row(epoch, likeness):
    matrix = [[1.0, likeness, 0.0], [likeness, 1.0, 0.5], [0.0, 0.5, 1.0]]
    return {
        "fit": "0",
        "phase": "shared",
        "epoch": epoch,
        "cost": float(epoch),
        "similarity": {"stage": matrix},
    }


CHESSBOARD = [(f"{n}.conv", f"{weight}.conv") for n, weight in enumerate([0, 1, 2, 1, 2, 5])]


def test_similarity_over_time_is_that_of_a_layer_with_the_others():
    actual, _ = shown("Sharing", [row(1, 0.2), row(2, 0.8)], {})
    assert [list(values) for values in actual.values] == [
        pytest.approx([0.1, 0.4]),
        pytest.approx([0.35, 0.65]),
        pytest.approx([0.25, 0.25]),
    ]
    assert (list(actual.rows), list(actual.columns)) == (["1", "2", "3"], ["1", "2"])


def test_many_epochs_are_thinned_to_the_first_the_last_and_some_between():
    few, many = (
        [int(epoch) for epoch in shown("Sharing", [row(k, 0.5) for k in range(count)], {})[0].columns]
        for count in (3, 100)
    )
    assert few == [0, 1, 2]
    assert (len(set(many)), many[0], many[-1]) == (12, 0, 99)


def loops(stored):
    """The drawings of a network whose layers use these weights."""
    route = [(str(layer), weight) for layer, weight in enumerate(stored)]
    blocks = shown("Sharing", [row(1, 0.2)], {"route": route})
    return [block for block in blocks if isinstance(block, Loops)]


def test_stretches_that_overlap_are_one():
    assert [list(one.names) for one in loops("abcbcd")] == [["b", "c"]]
    assert [list(one.names) for one in loops("aabcc")] == [["a"], ["c"]]
    assert [list(one.path) for one in loops("abba")] == [[0, 1, 1, 0]]
    assert loops("ab") == []


def drawn(figure):
    """The arrows as they stand in a drawing: the label, and whether it leads back."""
    html = report.render(report.Page("p", sections=[report.Section("s", [figure])]))
    html = html[html.index('class="block loops') :]
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', html).groups())
    labels = re.findall(r'class="(step[^"]*)"[^>]*/><text x="([\d.]+)" y="([\d.]+)">([^<]*)</text>', html)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for _, x, y, _ in labels)
    uses = [int(count) for count in re.findall(r">(\d+)×</text>", html)]
    assert uses == [list(figure.path).count(number) for number in range(len(figure.names))]
    return [(label, "back" in kind) for kind, _, _, label in labels]


def test_a_folded_network_is_a_path_with_loops():
    *_, figure = shown("Sharing", [row(1, 0.2)], {"route": CHESSBOARD})
    assert (list(figure.names), list(figure.path)) == (["1.conv", "2.conv"], [0, 1, 0, 1])
    assert figure.title == "4 layers, 2 weights"
    assert drawn(figure) == [("1, 3", False), ("2", True)]


def test_a_weight_used_in_turn_with_itself_loops():
    assert drawn(Loops(["a", "b", "c"], [0, 0, 0, 2, 1])) == [("1, 2", True), ("3", False), ("4", True)]
    with pytest.raises(ValueError, match="no weight 3"):
        Loops(["a"], [0, 3])


def test_the_page_has_maps_and_loops():
    history = [row(1, 0.2), row(2, 0.8)]
    blocks = shown("Sharing", history, {"route": CHESSBOARD})
    assert [type(block) for block in blocks] == [Heatmap, Heatmap, Loops]
    assert shown("Sharing", [{"phase": "base"}], {"route": CHESSBOARD}) == []
    html = report.render(report.run_page(history, {"route": CHESSBOARD}))
    assert "stage: similarity over time" in html
    assert "4 layers, 2 weights" in html


def test_names_are_escaped():
    evil = "<script>alert(1)</script>"
    html = report.render(
        report.Page("p", sections=[report.Section("s", [Loops([evil], [0, 0], evil, evil)])])
    )
    assert evil not in html
