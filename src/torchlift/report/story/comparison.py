"""The page of a comparison: which recipe paid off at equal cost, by how much, and how sure that is."""

import math

from torchlift.report.figures import Chart, DotRow, Dots, Points, Scatter
from torchlift.report.numbers import show
from torchlift.report.page import Page, PageBlock, Paragraphs, Spread
from torchlift.report.palette import CONTROL
from torchlift.report.story.rows import COST, PageData, finite_or_nan, mean_curve, sentence, wants_log
from torchlift.report.story.run import sections, settings
from torchlift.report.story.scores import mean_of, result_table, spread_of, verdict
from torchlift.report.story.stages import stage_table


def comparison_page(results: PageData) -> Page:
    """Recipes side by side, seed by seed, against the plain control."""
    recipes: dict[str, PageData] = dict(results.get("recipes") or {})
    seeds = [str(seed) for seed in results.get("seeds") or []]
    styles = _styles(recipes, results.get("plain"))
    spent = _amount(results.get("budget"), str(results.get("unit") or "plain epochs"))
    facts = (
        f"{len(recipes)} recipes",
        f"seeds {', '.join(seeds)}" if seeds else "",
        f"{spent} each" if spent else "",
        str(results.get("about") or ""),
    )
    return Page(
        str(results.get("title") or "Comparison"),
        " · ".join(fact for fact in facts if fact),
        sections(
            ("Result", [*verdict(results, spent), *result_table(results, recipes)]),
            ("Seed by seed", [*seed_dots(results, recipes, styles), *trade_off(results, recipes, styles)]),
            ("Curves", mean_charts(results, recipes, styles)),
            (
                "Stages",
                [
                    block
                    for name, one in recipes.items()
                    if one.get("stages")
                    for block in (Paragraphs(f"**{name}**"), stage_table(one["stages"]))
                ],
            ),
            (
                "Notes",
                [
                    *(Paragraphs(str(remark)) for remark in results.get("remarks") or []),
                    *(
                        Paragraphs(f"**{name}**: {note}")
                        for name, one in recipes.items()
                        for note in one.get("notes") or []
                    ),
                ],
            ),
            ("Settings", [block for name, one in recipes.items() for block in settings(one, name)]),
        ),
    )


def seed_dots(results: PageData, recipes: dict[str, PageData], styles: dict[str, int]) -> list[PageBlock]:
    """Every seed of every recipe as a dot, the control's mean as a line."""
    means = {
        name: spread
        for name, one in recipes.items()
        if isinstance(spread := spread_of(one.get("test")), Spread)
    }
    rows = [
        DotRow(name, [finite_or_nan(v) for v in recipes[name]["test"]], style=styles[name]) for name in means
    ]
    plain = means.get(str(results.get("plain", "plain")))
    labels = [f"seed {seed}" for seed in results.get("seeds") or []]
    caption = (
        "A dot per seed, a bar at the mean; dashed: the control's mean. Point at a dot to find its seed."
    )
    metric = f"test {results.get('metric', 'metric')}"
    dots = Dots(rows, labels, sentence(metric), metric, caption, plain.mean if plain else None)
    return [dots] if rows else []


def trade_off(results: PageData, recipes: dict[str, PageData], styles: dict[str, int]) -> list[PageBlock]:
    """The metric against the packed size, or against cost where sizes are unknown or all the same."""
    sizes = {name: finite_or_nan(one.get("bytes")) for name, one in recipes.items()}
    by_size = len({size for size in sizes.values() if size > 0}) > 1
    costs = {name: finite_or_nan(mean_of(one.get("cost"))) for name, one in recipes.items()}
    across = {name: size / 1000 for name, size in sizes.items()} if by_size else costs
    points = [
        Points(name, [across[name]], [spread.mean], y_error=[spread.sd or 0.0], style=styles[name])
        for name, one in recipes.items()
        if isinstance(spread := spread_of(one.get("test")), Spread) and math.isfinite(across[name])
    ]
    metric, label = f"test {results.get('metric', 'metric')}", "packed file (kB)" if by_size else COST
    title = f"{sentence(metric)} against {'size' if by_size else 'cost'}"
    positive = [value for value in across.values() if value > 0]
    log = by_size and max(positive) / min(positive) > 8
    return (
        [Scatter(points, title, label, metric, log_x=log, caption="Mean ± sd over seeds.")] if points else []
    )


def mean_charts(results: PageData, recipes: dict[str, PageData], styles: dict[str, int]) -> list[PageBlock]:
    """Mean curves with bands over cumulative cost: the metric, then the validation loss."""
    metric = str(results.get("metric", "metric"))
    kinds = (("metric", f"valid {metric}"), ("valid_loss", "valid loss"))
    charts: list[PageBlock] = []
    for key, label in kinds:
        curves = (
            mean_curve(one.get("history") or [], key, name, styles[name], bounds(key, metric))
            for name, one in recipes.items()
        )
        if lines := [line for line in curves if line is not None]:
            caption = "Mean over seeds; the band is ± one standard deviation."
            charts.append(
                Chart(
                    lines,
                    sentence(label),
                    COST,
                    label,
                    log_y=wants_log(lines),
                    caption=caption,
                    wide=not charts,
                )
            )
    return charts


def bounds(key: str, metric: str) -> tuple[float, float]:
    """What a value can be: an accuracy is a share, a loss may be anything."""
    return (0.0, 1.0) if key == "metric" and metric == "accuracy" else (-math.inf, math.inf)


def _styles(recipes: dict[str, PageData], plain: object) -> dict[str, int]:
    """A style per recipe, the same in every figure; the control is gray."""
    others = [name for name in recipes if name != plain]
    free = [number for number in range(len(others) + 1 + CONTROL) if number != CONTROL]
    return dict(zip(others, free, strict=False)) | ({str(plain): CONTROL} if plain in recipes else {})


def _amount(value: object, unit: str) -> str:
    return "" if value is None else f"{show(value) if isinstance(value, int | float) else value} {unit}"
