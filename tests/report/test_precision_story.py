"""What a page tells of precisions: layers, histogram, trade-off, sizes."""

import pytest
from page_blocks import row, shown

from torchlift import report
from torchlift.report import Bars, Scatter

LAYERS = [
    {"name": "a", "entries": 10, "zeros": 5, "bits": {0: 5, 2: 5}},
    {"name": "b", "entries": 4, "zeros": 0, "bits": {"4": 4}},
    {"name": "c", "entries": 4, "zeros": 0, "bits": None},
]


def test_layers_and_histogram():
    layers, weights = shown("Precision", [], {"layers": LAYERS})
    assert (layers.names, list(layers.series["bits"])) == (["a", "b"], [1.0, 4.0])
    assert weights.names == ["0 bits", "1 bit", "2 bits", "3 bits", "4 bits"]
    assert list(weights.series["weights"]) == pytest.approx([500 / 14, 0, 500 / 14, 0, 400 / 14])
    assert shown("Precision", [], {"layers": LAYERS[2:]}) == []


def test_the_trade_off_takes_the_quantized_network_where_it_is_known():
    history = [
        row("noise", 1, bits=7.0, metric=0.9, projected_metric=0.3),
        row("noise", 2, bits=2.5, metric=0.9, projected_metric=0.7),
        row("finetune", 3, bits=2.0, metric=0.85),
    ]
    (scatter,) = shown("Precision", history, {"metric": "accuracy"})
    assert [(one.name, list(one.x), list(one.y)) for one in scatter.points] == [
        ("noise", [7.0, 2.5], [0.3, 0.7]),
        ("finetune", [2.0], [0.85]),
    ]
    assert shown("Precision", history[2:], {"metric": "accuracy"}) == []
    assert shown("Precision", [row("base", 1, metric=0.9)], {}) == []


def test_sizes_of_methods():
    sizes = {"SMOL": [(9000.0, 0.7, 0.01)], "LSQ": [(18000.0, 0.71, 0.02)]}
    page = report.reproduction_page({"sizes": sizes, "y_label": "accuracy"})
    (scatter,) = (
        block for section in page.sections for block in section.blocks if isinstance(block, Scatter)
    )
    assert [(one.name, one.x, one.y, one.y_error) for one in scatter.points] == [
        ("SMOL", [9.0], [0.7], [0.01]),
        ("LSQ", [18.0], [0.71], [0.02]),
    ]


def test_a_page_has_a_section_on_precision():
    blocks = shown("Precision", [row("noise", 1, bits=3.0, metric=0.5)], {"layers": LAYERS})
    assert [type(block) for block in blocks] == [Bars, Bars]
