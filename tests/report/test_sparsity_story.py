"""What a page tells of a pruning: asked and got, layers, the trade-off, tickets."""

import pytest
from page_blocks import row, shown

from torchlift import report
from torchlift.report import Bars, Scatter, Table


def tables(history):
    return [block for block in shown("Sparsity", history, {"metric": "accuracy"}) if isinstance(block, Table)]


def test_target_and_achieved_of_every_target():
    history = [
        row("lifted", 1, sparsity=0.5, sparsity_target=0.95),
        row("finetune", 2, sparsity=0.951, sparsity_target=0.95),
    ]
    (table,) = tables(history)
    assert table.rows == [["Sparsity", 0.95, 0.951, "+0.10 points"]]
    (table,) = tables([row("finetune", 1, bytes=990.0, bytes_target=1000)])
    assert table.rows[0][1:] == [1000.0, 990.0, "-1.00 %"]
    assert tables([row("finetune", 1, macs_target=1000)]) == []


def test_layers_are_shown_only_where_something_was_pruned():
    layers = [{"name": "a", "entries": 10, "zeros": 9}, {"name": "b", "entries": 4, "zeros": 0}]
    (bars,) = shown("Sparsity", [], {"layers": layers})
    assert (bars.names, list(bars.series["sparsity"])) == (["a", "b"], [90.0, 0.0])
    assert shown("Sparsity", [], {"layers": layers[1:]}) == shown("Sparsity", [], {}) == []


def test_the_trade_off_takes_the_hard_network_where_it_is_known():
    history = [
        row("lifted", 1, sparsity=0.2, metric=0.9, projected_metric=0.3),
        row("lifted", 2, sparsity=0.8, metric=0.9, projected_metric=0.7),
        row("finetune", 3, sparsity=0.8, metric=0.85),
    ]
    (scatter,) = shown("Sparsity", history, {"metric": "accuracy"})
    assert [(one.name, list(one.x), list(one.y)) for one in scatter.points] == [
        ("lifted", [20.0, 80.0], [0.3, 0.7]),
        ("finetune", [80.0], [0.85]),
    ]
    assert shown("Sparsity", history[2:], {}) == []


def test_tickets_have_a_row_per_round():
    history = [
        row("round 1", 1, sparsity=0.0, metric=0.9),
        row("round 1", 2, sparsity=0.4, metric=0.92),
        row("round 2", 4, sparsity=0.8, metric=0.91),
        row("ticket", 6, sparsity=0.8, metric=0.93, valid_loss=0.2),
    ]
    (table,) = tables(history)
    assert [r[0] for r in table.rows] == ["round 1", "round 2", "ticket"]
    assert table.rows[0][1:3] == [pytest.approx(60.0), 0.92]
    assert table.rows[2][3] == 0.2
    assert tables([row("lifted", 1, sparsity=0.5)]) == []


def test_a_page_of_a_run_without_pruning_has_no_such_section():
    assert shown("Sparsity", [row("base", 1, metric=0.5)], {"layers": []}) == []
    page = report.run_page(
        [
            row("round 1", 1, sparsity=0.5, sparsity_target=0.5, metric=0.1),
            row("ticket", 2, sparsity=0.6, metric=0.2),
        ],
        {"layers": [{"name": "fc.weight", "entries": 2, "zeros": 1}]},
    )
    (section,) = [one for one in page.sections if one.title == "Sparsity"]
    assert [type(block) for block in section.blocks] == [Table, Bars, Scatter, Table]
    assert "Target and achieved" in report.render(page)
    assert "Tickets by round" in report.render(page)
