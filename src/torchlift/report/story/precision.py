"""What quantizing did: bits by layer, how many weights have how many, the metric against bits and bytes."""

from collections.abc import Mapping

from torchlift.report.figures import Bars, Points, Scatter
from torchlift.report.page import PageBlock
from torchlift.report.story.rows import PageData, Rows, metric_against, sentence


def precision_blocks(history: Rows, summary: PageData, metric: str) -> list[PageBlock]:
    """All there is to tell of precisions; nothing for a run that quantized nothing."""
    return [*layer_bits(summary), *histogram(summary), *bits_trade_off(history, metric)]


def weights_by_bits(layer: PageData) -> dict[int, int]:
    """How many weights of a layer have how many bits."""
    return {int(p): int(n) for p, n in (layer.get("bits") or {}).items()}


def layer_bits(summary: PageData) -> list[PageBlock]:
    """The average bits of every layer that lies on a grid; zeros count as no bits."""
    layers = [(str(one["name"]), weights_by_bits(one)) for one in summary.get("layers") or []]
    stored = [(name, bits) for name, bits in layers if bits]
    if not stored:
        return []
    means = [sum(p * n for p, n in bits.items()) / sum(bits.values()) for _, bits in stored]
    caption = "Bits per weight of each layer that lies on a grid; a zero has none."
    return [Bars([name for name, _ in stored], {"bits": means}, title="Bits per layer", caption=caption)]


def histogram(summary: PageData) -> list[PageBlock]:
    """The share of weights at each precision, over all layers on a grid."""
    total: dict[int, int] = {}
    for layer in summary.get("layers") or []:
        for p, n in weights_by_bits(layer).items():
            total[p] = total.get(p, 0) + n
    if not total:
        return []
    whole = sum(total.values())
    bits = range(max(total) + 1)
    shares = [100 * total.get(p, 0) / whole for p in bits]
    names = [f"{p} bit{'' if p == 1 else 's'}" for p in bits]
    return [Bars(names, {"weights": shares}, title="Weights by precision", caption="In percent.")]


def bits_trade_off(history: Rows, metric: str) -> list[PageBlock]:
    """The metric against bits per weight, a point per epoch; of noisy weights that of the quantized ones."""
    points = metric_against(history, "bits")
    if not points:
        return []
    return [Scatter(points, f"{sentence(metric)} against bits", "bits per weight", metric)]


def size_scatter(arms: Mapping[str, list[tuple[float, float, float]]], metric: str) -> Scatter:
    """The metric against the size of the file, a set of points (bytes, metric, spread) per method."""
    points = [
        Points(name, [b / 1000 for b, _, _ in rows], [m for _, m, _ in rows], y_error=[e for _, _, e in rows])
        for name, rows in arms.items()
    ]
    title = f"{sentence(metric)} against file size"
    return Scatter(points, title, "packed file (kB)", metric, log_x=True)
