"""Contrast by WCAG 2.2; color-vision deficiency by the matrices of Machado, Oliveira & Fernandes (2009)."""

import re
from itertools import combinations

import numpy as np
import pytest

from torchlift import report

THEMES = [
    dict(re.findall(r"--(\w+):(#\w{6})", block))
    for block in re.findall(r":root{([^}]*)}", report.svg(report.Bars(["a"], {"b": [1.0]})))
]
"""The colors of a figure by name, in light and in dark."""

DEFICIENCIES = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear_light(color):
    share = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(linear_light(color) @ [0.2126, 0.7152, 0.0722] for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(color, seen_through):
    linear = linear_light(color)
    linear = (seen_through @ linear).clip(0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_text_and_marks_have_enough_contrast(theme):
    for text in ("ink", "muted", "accent", "good", "bad"):
        for ground in ("page", "surface", "tint", "warn"):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    for number in range(8):
        assert contrast(theme[f"s{number}"], theme["surface"]) >= 3, number


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_the_first_series_are_told_apart_by_everyone(deficiency, theme):
    seen = [lab(theme[f"s{number}"], DEFICIENCIES[deficiency]) for number in range(6)]
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))
    assert nearest > 10


def test_heat_runs_from_dark_to_bright_with_readable_ink():
    grid = report.Heatmap(["r"], [str(k) for k in range(21)], [[k / 20 for k in range(21)]])
    page = report.render(report.Page("t", sections=[report.Section("s", [grid])]))
    steps = re.findall(r'style="background:(#\w{6});color:(#\w{6})"', page)
    assert len(steps) == 21
    lightness = [lab(color, np.eye(3))[0] for color, _ in steps]
    assert lightness == sorted(lightness)
    assert all(contrast(color, ink) >= 4.5 for color, ink in steps)


def test_contrast_of_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
