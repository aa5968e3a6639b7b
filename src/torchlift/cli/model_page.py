"""The page of a model: what it weighs, layer by layer, what goes in, what comes out, where it comes from."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from torchlift.core.stored import Stored, stored
from torchlift.deploy.measuring import measure, parameter_bits
from torchlift.packed.tensors import Item, write_items
from torchlift.report.numbers import shortest_text
from torchlift.report.page import Card, Cards, Column, KeyValues, Note, Page, PageBlock, Section, Table

Facts = Mapping[str, Any]


def model_page(
    title: str, card: Facts, model: nn.Module | None, example: Tensor | None, file_bytes: int | None = None
) -> Page:
    """All of it; without the model, what its card says."""
    contents: list[tuple[str, list[PageBlock]]] = [
        ("In short", in_short(card, model, example, file_bytes)),
        ("Target and achieved", target_facts(card)),
        ("Layers", [layer_table(model)] if model is not None else []),
        ("What goes in", input_facts(card.get("input", {}))),
        ("What comes out", output_facts(card.get("output", {}))),
        ("Where it comes from", [KeyValues(card["from"])] if card.get("from") else []),
    ]
    return Page(title, "", [Section(name, blocks) for name, blocks in contents if blocks])


def in_short(
    card: Facts, model: nn.Module | None, example: Tensor | None, file_bytes: int | None
) -> list[PageBlock]:
    """The figures people ask for, beside those of the model before, where the card has them."""
    before, cards = card.get("before", {}), list[Card]()
    measured = None if model is None or example is None else measure(model, example, card=card)
    if file_bytes is None and measured is not None:
        file_bytes = measured.file_bytes
    if file_bytes is not None:
        cards.append(Card("file", file_bytes, "bytes", other=before.get("bytes"), better="lower"))
    if model is not None:
        parameters = sum(p.numel() for p in model.parameters())
        nonzero = sum(int(p.count_nonzero()) for p in model.parameters())
        cards.append(Card("parameters", parameters, "count", other=before.get("parameters"), better="lower"))
        cards.append(Card("non-zero parameters", nonzero, "count"))
    if measured is not None:
        cards.append(Card("bits per parameter", measured.bits / max(measured.params, 1)))
        cards.append(Card("multiply–adds", measured.macs, "count"))
        cards.append(Card("latency", measured.latency_ms, "ms"))
    metric = str(card.get("metric", "metric"))
    cards += [Card(f"{split} {metric}", value) for split, value in card.get("scores", {}).items()]
    achieved = card.get("achieved", {})
    if "metric" in achieved:
        cards.append(Card("metric", achieved["metric"], other=before.get("metric"), better="higher"))
    if "output_error" in achieved:
        cards.append(
            Card("output error", achieved["output_error"], hint="squared, relative, calibration data")
        )
    closed = "The file holds weights alone: with --model file.py:factory this page shows its layers, too."
    return [*([Cards(cards)] if cards else []), *([Note(closed)] if model is None else [])]


def target_facts(card: Facts) -> list[PageBlock]:
    """What was to be reached, and what was; of runs and of compression."""
    said = card.get("targets", {})
    pairs = [
        (name, value["target"], value["achieved"])
        if isinstance(value, Mapping)
        else (name, value, card.get("achieved", {}).get(name))
        for name, value in said.items()
    ]
    columns = [Column("", align="left"), Column("target"), Column("achieved")]
    return [Table(columns, pairs)] if pairs else []


def layer_table(model: nn.Module) -> Table:
    """Shape, zeros, bits and bytes of each parameter."""
    records = stored(model)
    columns = [
        Column("parameter", align="left"),
        Column("shape"),
        Column("zeros", "percent"),
        Column("bits per weight"),
        Column("in the file", "bytes"),
    ]
    rows = [
        (
            name,
            "×".join(map(str, parameter.shape)) or "1",
            float((parameter == 0).float().mean()),
            parameter_bits(parameter, records.get(name, Stored())) / max(parameter.numel(), 1),
            write_items([item(parameter, records.get(name, Stored()))], keep=False).size,
        )
        for name, parameter in model.named_parameters()
    ]
    return Table(columns, rows)


def item(parameter: Tensor, record: Stored) -> Item:
    """What the file would say of a parameter."""
    return Item(parameter.detach(), record.step, record.kept)


def input_facts(schema: Facts) -> list[PageBlock]:
    """The columns of a table, the size of pictures, the shape of arrays."""
    columns = schema.get("columns")
    if columns:
        rows = [(str(c["name"]), "words" if "words" in c else "number", values_of(c)) for c in columns]
        heads = [Column(name, align="left") for name in ("column", "kind", "values")]
        return [Table(heads, rows)]
    facts = {"kind": schema.get("kind"), "numbers": schema.get("dtype")}
    if "shape" in schema:
        facts["size"] = " × ".join(map(str, schema["shape"]))
    if "shapes" in schema:
        facts["sizes"] = ", ".join(" × ".join(map(str, shape)) for shape in schema["shapes"])
    if "mean" in schema and "std" in schema:
        facts["scaled by mean"], facts["and deviation"] = (
            short_numbers(schema["mean"]),
            short_numbers(schema["std"]),
        )
    facts = {name: value for name, value in facts.items() if value}
    return [KeyValues(facts)] if facts else []


def values_of(column: Facts) -> str:
    """The words of a column, or how its numbers are scaled."""
    if "words" in column:
        return ", ".join(map(str, column["words"]))
    return f"mean {short_numbers(column['mean'])}, deviation {short_numbers(column['std'])}"


def short_numbers(values: list[float]) -> str:
    """Numbers to four digits."""
    return ", ".join(shortest_text(float(f"{value:.4g}")) for value in values)


def output_facts(schema: Facts) -> list[PageBlock]:
    """The names of classes, or the value."""
    facts = {"kind": schema.get("kind"), "target": schema.get("target")}
    if "classes" in schema:
        facts["classes"] = ", ".join(map(str, schema["classes"]))
    facts = {name: value for name, value in facts.items() if value}
    return [KeyValues(facts)] if facts else []
