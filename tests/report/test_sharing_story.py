"""What a page tells of shared weights: layers alike, over time, and the folded network as loops."""

import pytest

from torchlift import report
from torchlift.report import Heatmap, Loops
from torchlift.report.loops import loops_view
from torchlift.report.story.rows import spaced
from torchlift.report.story.sharing import loops, over_time, sharing_blocks, stretches


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
    actual = over_time([row(1, 0.2), row(2, 0.8)], "stage")
    assert [list(values) for values in actual.values] == [
        pytest.approx([0.1, 0.4]),
        pytest.approx([0.35, 0.65]),
        pytest.approx([0.25, 0.25]),
    ]
    assert (list(actual.rows), list(actual.columns)) == (["1", "2", "3"], ["1", "2"])


def test_many_epochs_are_thinned_to_the_first_the_last_and_some_between():
    assert spaced(3, 12) == [0, 1, 2]
    assert spaced(100, 12)[0] == 0
    assert spaced(100, 12)[-1] == 99
    assert len(set(spaced(100, 12))) == 12


def test_stretches_that_overlap_are_one():
    assert stretches(["a", "b", "c", "b", "c", "d"]) == [(1, 4)]
    assert stretches(["a", "a", "b", "c", "c"]) == [(0, 1), (3, 4)]
    assert stretches(["a", "b", "b", "a"]) == [(0, 3)]
    assert stretches(["a", "b"]) == []


def test_a_folded_network_is_a_path_with_loops():
    (drawn,) = loops({"route": CHESSBOARD})
    assert (list(drawn.names), list(drawn.path)) == (["1.conv", "2.conv"], [0, 1, 0, 1])
    assert drawn.title == "4 layers, 2 weights"
    view = loops_view(drawn)
    assert [(one["label"], one["back"]) for one in view["arrows"]] == [("1, 3", False), ("2", True)]
    assert [one["uses"] for one in view["circles"]] == [2, 2]
    inside = [(0 <= one["x"] <= view["width"], 0 <= one["y"] <= view["height"]) for one in view["arrows"]]
    assert inside == [(True, True)] * 2


def test_a_weight_used_in_turn_with_itself_loops():
    view = loops_view(Loops(["a", "b", "c"], [0, 0, 0, 2, 1]))
    assert [(one["label"], one["back"]) for one in view["arrows"]] == [
        ("1, 2", True),
        ("3", False),
        ("4", True),
    ]
    with pytest.raises(ValueError, match="no weight 3"):
        Loops(["a"], [0, 3])


def test_the_page_has_maps_and_loops():
    blocks = sharing_blocks([row(1, 0.2), row(2, 0.8)], {"route": CHESSBOARD})
    assert [type(block) for block in blocks] == [Heatmap, Heatmap, Loops]
    assert sharing_blocks([{"phase": "base"}], {"route": CHESSBOARD}) == []
    html = report.render(report.run_page([row(1, 0.2), row(2, 0.8)], {"route": CHESSBOARD}))
    assert "stage: similarity over time" in html
    assert "4 layers, 2 weights" in html


def test_names_are_escaped():
    evil = "<script>alert(1)</script>"
    html = report.render(
        report.Page("p", sections=[report.Section("s", [Loops([evil], [0, 0], evil, evil)])])
    )
    assert evil not in html
