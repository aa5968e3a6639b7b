"""The page of a compressed network: where the bytes went, errors by layer, outputs before and after."""

from torchlift.compress.result import Compressed, LayerRow
from torchlift.core.stored import Stored, stored
from torchlift.packed.tensors import Item, write_items
from torchlift.report.figures import Bars, Chart, Line
from torchlift.report.page import Card, Cards, Column, Page, Section, Table

SHOWN = 4


def page(done: Compressed) -> Page:
    """All of it."""
    targets = ", ".join(f"{name} {value:,}" for name, value in done.card["targets"].items())
    return Page(
        f"{type(done.model).__name__}: compressed" + (f" ({targets})" if targets else ""),
        f"{done.card['calibration']['samples']} calibration samples, no labels",
        [
            Section("In short", [figures(done)]),
            Section("Where the bytes went", [sizes(done)]),
            Section("Error by layer, in percent", [errors(done.rows)]),
            Section("Outputs before and after", output_charts(done)),
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


def sizes(done: Compressed) -> Bars:
    """Bytes of each weight in the file, and of all the rest: biases, norms, names, card."""
    records, weights = stored(done.model), dict(done.model.named_parameters())
    shown = [row.layer for row in done.rows if row.layer in weights]
    recorded = [records.get(name, Stored()) for name in shown]
    items = [Item(weights[n].detach(), r.step, r.kept) for n, r in zip(shown, recorded, strict=True)]
    streams = [write_items([item], keep=False).size for item in items]
    return Bars([*shown, "all else"], {"bytes": [*map(float, streams), float(done.bytes - sum(streams))]})


def errors(rows: list[LayerRow]) -> Bars:
    """The relative squared error of each layer's outputs."""
    measured = [row for row in rows if row.error is not None]
    percents = [float(f"{100 * (row.error or 0.0):.2g}") for row in measured]
    return Bars([row.layer for row in measured], {"relative squared error, %": percents})


def output_charts(done: Compressed) -> list[Chart]:
    """The outputs of the first samples."""
    before, after = done.samples
    charts: list[Chart] = []
    for number, (old, new) in enumerate(zip(before[:SHOWN], after[:SHOWN], strict=True)):
        numbers = [float(k) for k in range(len(old))]
        lines = [Line("before", numbers, old.tolist()), Line("after", numbers, new.tolist())]
        charts.append(Chart(lines, title=f"sample {number + 1}"))
    return charts


def layers(rows: list[LayerRow]) -> Table:
    """The table."""
    numbers = map(Column, ("shape", "bits", "zeros", "error", "sensitivity"))
    columns = [Column("layer", align="left"), *numbers, Column("why", align="left")]
    cells = [
        (r.layer, "×".join(map(str, r.shape)), r.bits, f"{r.zeros:.0%}", r.error, r.sensitivity, r.why)
        for r in rows
    ]
    filled = [k for k in range(len(columns)) if any(row[k] not in (None, "") for row in cells)]
    return Table([columns[k] for k in filled], [tuple(row[k] for k in filled) for row in cells])
