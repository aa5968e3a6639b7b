import math

import pytest

from torchlift.report.numbers import (
    aligned_numbers,
    duration,
    interval,
    plus_minus,
    readable_count,
    show,
    si,
    significant,
    wilson,
)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (70_346, "count", "70,346"),
        (1_240_000, "count", "1.24 M"),
        (0, "count", "0"),
        (281_384, "bytes", "281 kB"),
        (999_999, "bytes", "1.00 MB"),
        (12, "bytes", "12 B"),
        (3.21, "ms", "3.2 ms"),
        (0.93, "seconds", "930 ms"),
        (12.34, "seconds", "12.3 s"),
        (200, "seconds", "3 min 20 s"),
        (7500, "seconds", "2 h 05 min"),
        (0.55, "percent", "55 %"),
        (0.7041, "percent", "70.4 %"),
        (2.41e12, "flops", "2.41 TFLOP"),
        (0.012, "signed", "+0.01200"),
        (-0.012, "signed", "−0.01200"),
        (0.74123, "auto", "0.7412"),
        (123_456.7, "auto", "123,457"),
        (3.2e-7, "auto", "3.20e−7"),
        (36.0, "auto", "36"),
        (None, "auto", "–"),
        (math.nan, "count", "–"),
        (-math.inf, "auto", "−∞"),
        ("as it is", "bytes", "as it is"),
    ],
)
def test_show(value, form, text):
    assert show(value, form).replace("\N{NO-BREAK SPACE}", " ") == text


def test_spreads_get_the_digits_they_deserve():
    assert plus_minus(0.74123, 0.0042) == "0.741 ± 0.004"
    assert plus_minus(0.74123, 0.0014) == "0.7412 ± 0.0014"
    assert plus_minus(12_345.6, 321.0) == "12,346 ± 321"
    assert plus_minus(0.5, None) == "0.5000"
    assert plus_minus(0.5, 0.0) == "0.5000 ± 0.0000"


def test_intervals_show_on_which_side_of_zero_they_end():
    assert interval(0.0025, -0.0004, 0.0054, signed=True) == "+0.0025 [−0.0004, 0.0054]"
    assert interval(math.nan, 0, 1) == "–"


def test_aligned_columns_share_their_decimals():
    assert aligned_numbers([0.72, 0.8, 1]) == ["0.72", "0.80", "1.00"]
    assert aligned_numbers([1, 2, math.nan]) == ["1", "2", "–"]
    assert aligned_numbers([-0.5, 0, 0.5]) == ["−0.5", "0.0", "0.5"]


def test_rounding_never_makes_a_negative_zero_or_a_thousand_of_something():
    assert interval(-0.00001, -1, 1) == "0.00 [−1.00, 1.00]"
    assert si(999_600).startswith("1.00")
    assert readable_count(1e6).startswith("1.00")
    assert significant(0.1 + 0.2) == "0.3000"
    assert duration(59.99).startswith("60.0")


def test_the_interval_of_a_share():
    """As scipy.stats.binomtest(k, n).proportion_ci(0.8, "wilson") has it."""
    assert wilson(0.9, 100, 1.2816)[0] == pytest.approx(0.8549, abs=1e-4)
    assert wilson(1.0, 360, 1.2816) == (pytest.approx(360 / (360 + 1.2816**2)), 1.0)
    assert wilson(0.0, 5)[0] == 0.0
