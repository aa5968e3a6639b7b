import json
import math
import re

import pytest
import report_demo as demo

from torchlift import report


def words(page):
    """The visible text of a page."""
    text = re.sub(r"<(style|script).*?</\1>", " ", report.render(page), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)).replace("\N{NO-BREAK SPACE}", " ")


def blocks(page, kind):
    return [block for section in page.sections for block in section.blocks if isinstance(block, kind)]


def test_a_run_page_tells_result_cost_model_phases_and_lifts():
    page = report.run_page(demo.history(), demo.summary())
    text = words(page)
    for fact in (
        "0.9583",
        "36 plain epochs",
        "2.41 TFLOP",
        "37.9 kB",
        "was 283 kB",
        "1.8 ms",
        "SoftMask",
        "69,994",
        "threshold",
    ):
        assert fact in text, fact
    charts = blocks(page, report.Chart)
    assert [chart.title for chart in charts] == [
        "Loss",
        "Accuracy",
        "Penalty",
        "Gap",
        "Sparsity",
        "Learning rate",
    ]
    assert [phase.label for phase in charts[0].phases] == ["base", "lifted", "project"]
    assert charts[0].phases[-1].x1 == pytest.approx(36.0)
    assert "optimizer.lr" in text


def test_history_may_come_straight_from_json_lines():
    rows = [json.loads(line) for line in "\n".join(json.dumps(row) for row in demo.history()).splitlines()]
    assert report.render(report.run_page(rows, demo.summary())) == report.render(
        report.run_page(demo.history(), demo.summary())
    )


def test_fits_are_parted_by_gaps_because_their_objectives_differ():
    rows = [
        {"fit": 0, "phase": "a", "cost": 1.0, "train_loss": 3.0},
        {"fit": 0, "phase": "a", "cost": 2.0, "train_loss": None},
        {"fit": 0, "phase": "a", "cost": 3.0, "train_loss": math.inf},
        {"fit": 1, "phase": "a", "cost": 4.0, "train_loss": 1.0},
    ]
    (chart,) = blocks(report.run_page(rows, {}), report.Chart)
    (line,) = chart.lines
    assert list(line.x) == [1.0, 3.0, 3.0, 4.0]
    assert [y if math.isfinite(y) else None for y in line.y] == [3.0, None, None, 1.0]
    assert [(phase.x0, phase.x1) for phase in chart.phases] == [(0.0, 3.0), (3.0, 4.0)]


def test_extras_are_the_numeric_keys_that_change():
    rows = [
        {"cost": 1, "gap": 1.0, "same": 2.0, "word": "x"},
        {"cost": 2, "gap": 0.5, "same": 2.0, "word": "y"},
    ]
    charts = blocks(report.run_page(rows, {}), report.Chart)
    assert [chart.title for chart in charts] == ["Gap"]


def test_mean_curves_average_seeds_up_to_the_shortest():
    first = [{"cost": x, "metric": float(x)} for x in (1, 2, 3, 4)]
    second = [{"cost": x, "metric": 2.0 * x} for x in (2, 4, 6)]

    def means(*seeds):
        recipes = {"plain": {"history": list(seeds)}}
        charts = blocks(report.comparison_page({"metric": "m", "recipes": recipes}), report.Chart)
        return [line for chart in charts for line in chart.lines]

    (line,) = means(first, second)
    assert list(line.x) == [2, 3, 4]
    assert list(line.y) == pytest.approx([3.0, 4.5, 6.0])
    sd = [(b - a) / math.sqrt(2) for a, b in ((2, 4), (3, 6), (4, 8))]
    assert [h - y for h, y in zip(line.high, line.y, strict=True)] == pytest.approx(sd)
    (alone,) = means(first)
    assert alone.low is None
    assert len(means(first, [])) == 1, "a seed without rows does not count"


def test_a_comparison_page_reads_its_verdict_off_the_paired_interval():
    text = words(report.comparison_page(demo.comparison()))
    assert "soft mask : better, +0.012" in text
    assert "neural lifting : no clear difference" in text
    assert "magnitude pruning : worse, −0.01" in text
    assert "better on 5 of 5 seeds" in text


def test_no_star_beside_no_clear_difference_and_sizes_in_the_verdict():
    results = demo.comparison()
    table = blocks(report.comparison_page(results), report.Table)[0]
    assert table.columns[1].best == "high", "the best, soft mask, is clearly better than plain"
    unclear = {"mean": 0.01, "low": -0.01, "high": 0.03, "wins": 3, "ties": 2}
    results["paired"]["soft mask"] = unclear
    results["recipes"]["soft mask"]["bytes"] = results["recipes"]["plain"]["bytes"] / 4
    results["recipes"]["soft mask"]["latency_ms"] = results["recipes"]["plain"]["latency_ms"] * 2
    page = report.comparison_page(results)
    assert blocks(page, report.Table)[0].columns[1].best == ""
    text = words(page)
    assert "soft mask : no clear difference" in text
    assert "better on 3 of 5 seeds (2 tied); file 4× smaller; call 2× slower" in text


def test_a_chains_stages_have_their_own_costs():
    stages = [
        {"stage": "norm", "cost": 2.0, "seconds": 4.0, "metric": 0.8, "parameters": 10, "file_bytes": 90},
        {"stage": "bits", "cost": 5.0, "seconds": 6.0, "metric": 0.75, "parameters": 9, "file_bytes": 20},
    ]
    table = next(t for t in blocks(report.run_page([], {"stages": stages}), report.Table))
    assert table.rows[0] == ["norm", 2.0, 4.0, 0.8, None, 10, 90]
    assert table.rows[1] == ["bits", 3.0, 2.0, 0.75, pytest.approx(-0.05), 9, 20]


def test_differences_are_gains_whichever_way_the_metric_points():
    results = demo.comparison() | {"higher_is_better": False, "metric": "error"}
    text = words(report.comparison_page(results))
    assert "soft mask : better" in text
    assert "magnitude pruning : worse" in text
    table = blocks(report.comparison_page(results), report.Table)[0]
    assert table.columns[1].best == "low"


def test_a_recipe_keeps_its_style_and_the_control_is_gray():
    page = report.comparison_page(demo.comparison())
    styles = [{line.name: line.style for line in chart.lines} for chart in blocks(page, report.Chart)]
    assert len(styles) == 2
    assert styles[0] == styles[1]
    assert styles[0]["plain"] == 7
    assert {row.name: row.style for row in blocks(page, report.Dots)[0].rows} == styles[0]


def test_a_reproduction_page_sets_claim_beside_measurement():
    text = words(report.reproduction_page(demo.reproduction()))
    for fact in (
        "beats the paper's baseline",
        "0.0178 ± 0.0021",
        "0.0173",
        "15 data sets, 200 epochs",
        "cores 2, torch 2.13",
    ):
        assert fact in text.replace("&#39;", "'").replace("&#x27;", "'"), fact


def test_curves_with_panels_become_charts_of_their_own():
    curves = [
        {"name": "a", "y": [1, 2], "panel": "loss"},
        {"name": "b", "x": [0, 1], "y": [1, 2], "panel": "error"},
    ]
    charts = blocks(report.reproduction_page({"curves": curves}), report.Chart)
    assert [(chart.title, chart.lines[0].name) for chart in charts] == [("Loss", "a"), ("Error", "b")]
    assert list(charts[0].lines[0].x) == [0.0, 1.0]


def every_subset_of_one_missing(data):
    return [{key: value for key, value in data.items() if key != gone} for gone in data] + [{}]


def test_missing_keys_are_left_out_and_unknown_ones_ignored():
    for summary in every_subset_of_one_missing(demo.summary()):
        report.render(report.run_page(demo.history(), summary | {"unknown": object()}))
    report.render(report.run_page([], {}))
    report.render(
        report.run_page([{"phase": "a"}, {"cost": None, "train_loss": "bad"}], {"results": {"test": None}})
    )
    for results in every_subset_of_one_missing(demo.comparison(2)):
        report.render(report.comparison_page(results | {"unknown": 1}))
    for entry in every_subset_of_one_missing(demo.reproduction()):
        report.render(report.reproduction_page(entry | {"unknown": 1}))


def test_recipes_may_lack_anything_and_seeds_may_fail():
    for gone in demo.comparison(2)["recipes"]["plain"]:
        results = demo.comparison(2)
        for recipe in results["recipes"].values():
            del recipe[gone]
        report.render(report.comparison_page(results))
    results = demo.comparison(3)
    results["recipes"]["plain"]["test"] = [0.9, None, math.nan]
    results["recipes"]["plain"]["history"][1] = []
    results["paired"]["soft mask"] = {"mean": None}
    assert "0.9000" in words(report.comparison_page(results))


def test_bits_per_parameter_are_those_of_one_parameter():
    """32 bits each, not the 2,251,072 of all together; a summary without parameters has no such card."""
    (cards,) = blocks(report.run_page([], {"after": {"params": 70_346, "bits": 70_346 * 32}}), report.Cards)
    assert [(card.label, card.value) for card in cards.cards] == [
        ("parameters", 70_346),
        ("bits per parameter", 32),
    ]
    (cards,) = blocks(report.run_page([], {"after": {"params": 0, "bits": 0}}), report.Cards)
    assert [card.label for card in cards.cards] == ["parameters"]


def test_a_band_of_accuracies_stays_a_share():
    rows = [
        [{"fit": 0, "cost": 1.0, "metric": value}, {"fit": 0, "cost": 2.0, "metric": value}]
        for value in (0.7, 1.0, 1.0)
    ]

    def band(metric):
        results = {"metric": metric, "recipes": {"a": {"history": rows}}}
        (chart,) = blocks(report.comparison_page(results), report.Chart)
        return chart.lines[0]

    line = band("accuracy")
    assert max(line.high) == 1.0
    assert min(line.low) == pytest.approx(0.9 - 0.1732, abs=1e-3)
    assert max(band("error").high) > 1.0, "nothing is known of other metrics"


def test_the_delivered_model_stands_beside_the_given_one():
    summary = {
        "metric": "accuracy",
        "results": {"valid": 0.9, "test": 1.0},
        "given": {"valid": 0.1, "test": 0.2},
        "uncut": 0.95,
        "counts": {"valid": 100, "test": 50},
        "widths": [("0 (Conv2d)", 16, 8), ("3 (Linear)", 10, 10)],
    }
    page = report.run_page([], summary)
    table = next(b for section in page.sections for b in section.blocks if isinstance(b, report.Table))
    assert [c.name for c in table.columns] == [
        "accuracy on",
        "your model",
        "trained, before the cut",
        "delivered",
    ]
    valid, test = table.rows
    assert valid[:3] == ["valid", 0.1, 0.95]
    assert 0.82 < valid[3].low < 0.83
    assert test[3].high == 1.0
    bars = next(b for section in page.sections for b in section.blocks if isinstance(b, report.Bars))
    assert bars.series == {"given": [16, 10], "delivered": [8, 10]}
