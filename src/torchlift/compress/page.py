"""The page of a compressed network: where the bytes went, errors by layer, outputs before and after."""

from math import prod

from torchlift.compress.result import Compressed, LayerRow
from torchlift.report.figures import Bars, Chart, Line
from torchlift.report.page import Card, Cards, Column, Page, Section, Table

SHOWN = 4


def page(done: Compressed) -> Page:
    """All of it."""
    return Page(
        "Compressed network",
        f"{done.card['calibration']['samples']} calibration samples, no labels, no training",
        [
            Section("In short", [figures(done)]),
            Section("Where the bytes went", [sizes(done.rows)]),
            Section("Error by layer", [errors(done.rows)]),
            Section("Outputs before and after", outputs(done)),
            Section("Layer by layer", [layers(done.rows)]),
        ],
    )


def figures(done: Compressed) -> Cards:
    """The figures people ask for."""
    after, before = done.card["achieved"], done.card["before"]
    cards = [
        Card("file", after["bytes"], unit="bytes", other=before["bytes"], better="lower"),
        Card("parameters", after["parameters"], other=before["parameters"], better="lower"),
        Card("MACs of a sample", after["macs"]),
        Card("output error", after["output_error"], hint="squared, relative, on the calibration data"),
    ]
    if "metric" in after:
        cards.append(Card("metric", after["metric"], other=before["metric"], better="higher"))
    return Cards(cards)


def sizes(rows: list[LayerRow]) -> Bars:
    """Bytes of each weight at the bits it has."""
    bytes_at_most = [prod(row.shape) * (row.bits or 32) / 8 for row in rows]
    return Bars([row.layer for row in rows], {"bytes at most": bytes_at_most})


def errors(rows: list[LayerRow]) -> Bars:
    """The relative squared error of each layer's outputs."""
    measured = [row for row in rows if row.error is not None]
    return Bars(
        [row.layer for row in measured], {"relative squared error": [row.error or 0.0 for row in measured]}
    )


def outputs(done: Compressed) -> list[Chart]:
    """The outputs of the first samples."""
    before, after = done.samples
    charts: list[Chart] = []
    for number, (old, new) in enumerate(zip(before[:SHOWN], after[:SHOWN], strict=True)):
        places = [float(k) for k in range(len(old))]
        lines = [Line("before", places, old.tolist()), Line("after", places, new.tolist())]
        charts.append(Chart(lines, title=f"sample {number + 1}"))
    return charts


def layers(rows: list[LayerRow]) -> Table:
    """The table."""
    columns = [
        Column("layer", align="left"),
        Column("shape"),
        Column("bits"),
        Column("zeros"),
        Column("error"),
    ]
    columns += [Column("sensitivity"), Column("why", align="left")]
    cells = [
        (r.layer, "×".join(map(str, r.shape)), r.bits, r.zeros, r.error, r.sensitivity, r.why) for r in rows
    ]
    return Table(columns, cells)
