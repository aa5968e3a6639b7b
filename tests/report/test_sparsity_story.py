"""What a page tells of a pruning: asked and got, layers, the trade-off, tickets."""

import pytest

from torchlift import report
from torchlift.report import Bars, Scatter, Table
from torchlift.report.story.sparsity import (
    layer_bars,
    sparsity_blocks,
    sparsity_trade_off,
    target_and_achieved,
    tickets,
)


def row(phase, epoch, **more):
    return {"fit": phase, "phase": phase, "epoch": epoch, "cost": float(epoch), **more}


def test_target_and_achieved_of_every_target():
    history = [
        row("lifted", 1, sparsity=0.5, sparsity_target=0.95),
        row("finetune", 2, sparsity=0.951, sparsity_target=0.95),
    ]
    (table,) = target_and_achieved(history)
    assert table.rows == [["Sparsity", 0.95, 0.951, "+0.10 points"]]
    (table,) = target_and_achieved([row("finetune", 1, bytes=990.0, bytes_target=1000)])
    assert table.rows[0][1:] == [1000.0, 990.0, "-1.00 %"]
    assert target_and_achieved([row("finetune", 1, macs_target=1000)]) == []


def test_layers_are_shown_only_where_something_was_pruned():
    layers = [{"name": "a", "entries": 10, "zeros": 9}, {"name": "b", "entries": 4, "zeros": 0}]
    (bars,) = layer_bars({"layers": layers})
    assert (bars.names, list(bars.series["sparsity"])) == (["a", "b"], [90.0, 0.0])
    assert layer_bars({"layers": layers[1:]}) == layer_bars({}) == []


def test_the_trade_off_takes_the_hard_network_where_it_is_known():
    history = [
        row("lifted", 1, sparsity=0.2, metric=0.9, projected_metric=0.3),
        row("lifted", 2, sparsity=0.8, metric=0.9, projected_metric=0.7),
        row("finetune", 3, sparsity=0.8, metric=0.85),
    ]
    (scatter,) = sparsity_trade_off(history, "accuracy")
    assert [(one.name, list(one.x), list(one.y)) for one in scatter.points] == [
        ("lifted", [20.0, 80.0], [0.3, 0.7]),
        ("finetune", [80.0], [0.85]),
    ]
    assert sparsity_trade_off(history[2:], "accuracy") == []


def test_tickets_have_a_row_per_round():
    history = [
        row("round 1", 1, sparsity=0.0, metric=0.9),
        row("round 1", 2, sparsity=0.4, metric=0.92),
        row("round 2", 4, sparsity=0.8, metric=0.91),
        row("ticket", 6, sparsity=0.8, metric=0.93, valid_loss=0.2),
    ]
    (table,) = tickets(history, "accuracy")
    assert [r[0] for r in table.rows] == ["round 1", "round 2", "ticket"]
    assert table.rows[0][1:3] == [pytest.approx(60.0), 0.92]
    assert table.rows[2][3] == 0.2
    assert tickets([row("lifted", 1, sparsity=0.5)], "accuracy") == []


def test_a_page_of_a_run_without_pruning_has_no_such_section():
    assert sparsity_blocks([row("base", 1, metric=0.5)], {"layers": []}, "accuracy") == []
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
