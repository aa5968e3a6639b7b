"""Write what the records of compress say into its pages, with pictures.

python benchmarks/compress_page.py
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlift.report.figures import Points, Scatter
from torchlift.report.standalone import svg

ROOT = Path(__file__).parent.parent
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images" / "results"
DOCS = ROOT / "docs"
FAMILIES = ("ours", "GPTQ", "rounding", "palette", "Torch-Pruning", "ONNX Runtime", "original")
SURE = 2.0
"""Ahead and behind: by more than so many standard errors; level otherwise."""

Cells = dict[str, dict[str, list[dict[str, Any]]]]


def by_network(record: Mapping[str, Any]) -> Cells:
    """{network: {method: cells of all seeds}}."""
    cells: Cells = {}
    for key, cell in record["cells"].items():
        network, _, method = key.split("; ")
        cells.setdefault(network, {}).setdefault(method, []).append(cell)
    return cells


def mean(cells: list[dict[str, Any]], key: str) -> float:
    """Over seeds."""
    return statistics.mean(cell[key] for cell in cells)


def measured(methods: Mapping[str, list[dict[str, Any]]]) -> dict[str, tuple[float, float, float]]:
    """{method: bytes, accuracy, its spread} of those that took the network."""
    return {
        name: (mean(cells, "bytes"), mean(cells, "accuracy"), spread(cells))
        for name, cells in methods.items()
        if all("accuracy" in cell for cell in cells)
    }


def spread(cells: list[dict[str, Any]]) -> float:
    """The standard deviation over seeds; 0 for one."""
    return statistics.stdev(cell["accuracy"] for cell in cells) if len(cells) > 1 else 0.0


def family(method: str) -> str:
    """Whose method it is."""
    return next(name for name in FAMILIES if method.startswith(name))


def by_bytes(network: str, methods: Mapping[str, list[dict[str, Any]]]) -> Scatter:
    """Accuracy against bytes."""
    rows, points = measured(methods), list[Points]()
    for name in FAMILIES:
        own = {label: row for label, row in rows.items() if family(label) == name}
        if own:
            size, right, apart = zip(*own.values(), strict=True)
            points.append(Points(name, size, right, y_error=apart, labels=list(own)))
    return Scatter(points, f"{network}: the file", "bytes", "accuracy, %", log_x=True)


def by_time(network: str, calls: Mapping[str, Mapping[str, float]]) -> Scatter:
    """Accuracy against the time of a call."""
    points = [Points(label, [row["time"]], [row["accuracy"]]) for label, row in calls.items()]
    return Scatter(points, f"{network}: a call", "CPU time, original = 1", "accuracy, %")


def verdict(gap: Mapping[str, Any]) -> str:
    """Whether ours is ahead of a rival."""
    if "points" not in gap:
        return "none as small"
    if abs(gap["points"]) <= SURE * gap["standard error"]:
        return "level"
    return "ahead" if gap["points"] > 0 else "behind"


def shown(gap: Mapping[str, Any] | None) -> str:
    """A difference with its standard error."""
    if gap is None:
        return ""
    if "points" not in gap:
        return "none as small"
    text = f"{gap['points']:+.1f} ± {gap['standard error']:.1f}"
    return f"**{text}**" if verdict(gap) == "behind" else text


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def partial(record: Mapping[str, Any]) -> str:
    """What of a record is missing."""
    return f"\nPartial, {record['partial']}.\n\n" if "partial" in record else "\n"


def summary(record: Mapping[str, Any]) -> str:
    """A table of all rivals on all networks, and where ours is behind."""
    by_rival = {network: row["rivals"] for network, row in record["ours beside"].items()}
    rivals = list(dict.fromkeys(name for row in by_rival.values() for name in row))
    text = partial(record) + f"| ours less | {' | '.join(by_rival)} |\n|---|{'---|' * len(by_rival)}\n"
    for rival in rivals:
        text += f"| {rival} | {' | '.join(shown(row.get(rival)) for row in by_rival.values())} |\n"
    verdicts = [
        (verdict(gap), f"{rival} on {network}")
        for network, row in by_rival.items()
        for rival, gap in row.items()
    ]
    counts = {
        word: sum(v == word for v, _ in verdicts) for word in ("ahead", "level", "behind", "none as small")
    }
    text += f"\nOf {len(verdicts)} comparisons: {', '.join(f'{word} {n}' for word, n in counts.items())}. "
    behind = [name for word, name in verdicts if word == "behind"]
    text += f"Behind: {listed(behind) or 'nowhere'}.\n\n{beside_rounding(record)}\n\n"
    for network, row in record["ours beside"].items():
        text += f"![{network}: accuracy against bytes]({picture(network, 'bytes')})\n"
        if f"{network}; {row['seeds'][0]}; call times" in record["cells"]:
            text += f"![{network}: accuracy against the time of a call]({picture(network, 'calls')})\n"
    return text + "\n"


def beside_rounding(record: Mapping[str, Any]) -> str:
    """Ours and rounding to as many bits: outputs on unseen inputs, and test accuracy."""
    rows = [
        (f"{network} at {bits}", gap)
        for network, row in record["ours beside"].items()
        for bits, gap in row["rounding"].items()
    ]
    ratios = [ratio for _, gap in rows for ratio in gap["output error"]]
    worse = [f"{name} ({shown(gap)})" for name, gap in rows if verdict(gap) == "behind"]
    text = "Beside rounding to as many bits, outputs on unseen inputs are nearer to the original's in "
    text += f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} cases"
    text += f" (error {min(ratios):.2g} to {max(ratios):.2g} of rounding's)" if ratios else ""
    return (
        text
        + f"; test accuracy is lower by more than {SURE:g} standard errors: {listed(worse) or 'nowhere'}."
    )


def picture(network: str, kind: str) -> str:
    """Where a page finds a picture."""
    return f"../images/results/compress-{network.lower().replace(' ', '-')}-{kind}.svg"


def draw(record: Mapping[str, Any]) -> None:
    """The pictures of all networks."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    cells = by_network(record)
    for network in record["ours beside"]:
        methods = cells[network]
        (DOCS / "methods" / picture(network, "bytes")).write_text(svg(by_bytes(network, methods)))
        if "call times" in methods:
            calls = methods["call times"][0]["calls"]
            (DOCS / "methods" / picture(network, "calls")).write_text(svg(by_time(network, calls)))


def rivals(record: Mapping[str, Any]) -> str:
    """Tables of all networks."""
    text, cells = partial(record), by_network(record)
    for network, row in record["ours beside"].items():
        methods, seeds = cells[network], len(row["seeds"])
        tested = methods["original"][0]["test samples"]
        text += f"### {network}, {seeds} seed{'s' if seeds > 1 else ''}, {tested:,} test samples\n\n"
        text += "| | bytes | accuracy, % | same answer as the original, % | ours less this | by |\n"
        text += "|---|---|---|---|---|---|\n"
        for label, (size, right, apart) in sorted(measured(methods).items(), key=lambda one: one[1][0]):
            gap = row["rivals"].get(label)
            about = f"{right:.1f} ± {apart:.1f}" if seeds > 1 else f"{right:.1f}"
            by = "; ".join(dict.fromkeys((gap or {}).get("ours", ())))
            same = mean(methods[label], "same answer")
            text += f"| {label} | {size:,.0f} | {about} | {same:.1f} | {shown(gap)} | {by} |\n"
        fails = [label for label, own in methods.items() if any("fails" in cell for cell in own)]
        text += f"\nDoes not take this network: {listed(fails)}.\n" if fails else ""
        if "call times" in methods:
            text += "\n| one call, seed 0 | CPU time, original = 1 | accuracy, % |\n|---|---|---|\n"
            for label, call in methods["call times"][0]["calls"].items():
                text += f"| {label} | {call['time']:.2f} | {call['accuracy']:.1f} |\n"
        text += "\n"
    return text


def pitch(record: Mapping[str, Any]) -> str:
    """The table of the pitch tracker."""
    text = "\n| | within 50 cents | each set of 500 | file | CPU s |\n|---|---|---|---|---|\n"
    floats = 4 * max(row["parameters"] for row in record["cases"].values())
    for key, row in {"as published": record["original"], **record["cases"]}.items():
        each, seconds = row["each set, %"], row.get("CPU seconds")
        text += (
            f"| {key.partition(';')[0]} | {row['within 50 cents, %']:.1f} ± {row['standard error, %']:.1f} % "
        )
        text += f"| {min(each)} to {max(each)} % " if len(each) > 1 else f"| {each[0]} % "
        text += (
            f"| {row['bytes'] / 1000:,.0f} kB | "
            if "bytes" in row
            else f"| {floats / 1000:,.0f} kB of floats | "
        )
        text += "|\n" if seconds is None else f"{'+' if 'solved' in row else ''}{seconds:.0f} |\n"
    return text + "\n"


def arms(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{form: {what is left out: its figures}} of one network of the ablation."""
    by_form: dict[str, dict[str, Any]] = {}
    for key, cell in row.items():
        form, _, arm = key.partition("; ")
        if arm:
            by_form.setdefault(form, {})[arm] = cell
    return by_form


def ablation(record: Mapping[str, Any]) -> str:
    """The table of what each part is worth, and what leaving it out changes."""
    networks = {name: arms(row) for name, row in record["networks"].items()}
    labels = list(next(iter(next(iter(networks.values())).values())))
    text = f"\n| | {' | '.join(labels)} |\n|---|{'---|' * len(labels)}\n"
    points: dict[str, list[float]] = {label: [] for label in labels[1:]}
    ratios: dict[str, list[float]] = {label: [] for label in labels[1:]}
    for name, forms in networks.items():
        whole = record["networks"][name]["original, %"]
        for form, row in forms.items():
            cells = [f"{row[arm]['accuracy, %']:.1f} ({row[arm]['output error']:.2g})" for arm in labels]
            text += f"| {name} ({whole:.1f}), {form} | {' | '.join(cells)} |\n"
            for arm in labels[1:]:
                points[arm].append(row[arm]["accuracy, %"] - row["all"]["accuracy, %"])
                ratios[arm].append(row[arm]["output error"] / row["all"]["output error"])
    text += "\n| beside all | accuracy, points | mean | error of the outputs, times |\n|---|---|---|---|\n"
    for arm, moved in points.items():
        text += f"| {arm} | {min(moved):+.1f} to {max(moved):+.1f} | {statistics.mean(moved):+.1f} | "
        text += " to ".join(f"{float(f'{ratio:.2g}'):g}" for ratio in (min(ratios[arm]), max(ratios[arm])))
        text += " |\n"
    return text + "\n"


def pays(record: Mapping[str, Any]) -> str:
    """What three networks keep with half of the channels off, with and without the refit."""
    halves = [arms(row)["half off"] for row in record["networks"].values()]
    kept, lost = ([row[arm]["accuracy, %"] for row in halves] for arm in ("all", "no refit"))
    whole = [f"{row['original, %']:.1f}" for row in record["networks"].values()]
    return (
        "\nYes, mostly by the refit: with half of the channels cut, three small networks keep "
        f"{min(kept):.1f} to {max(kept):.1f} %\naccuracy ({listed(whole)} % before); without the refit they "
        f"keep {min(lost):.1f} to {max(lost):.1f} %.\n"
    )


def scale(record: Mapping[str, Any]) -> str:
    """One large network: time and memory."""
    samples, length = record["tokens"]
    options = ", ".join(f"`{name}={value}`" for name, value in record["options"].items())
    threads = "one thread" if record["threads"] == 1 else f"{record['threads']} threads"
    return (
        f"\nAn encoder of {record['parameters'] / 1e6:.0f} million random weights, {samples} × {length} "
        f"tokens, {options}, {threads}\n(`benchmarks/compress_scale.py`): {record['CPU minutes']:.1f} CPU "
        f"minutes, {record['bytes'] / 1e6:.1f} MB of {record['model, MB']:.0f}.\nMemory at its peak, the "
        f"model included: {record['peak, MB']:,.0f} MB; three models, two batches and the largest Gram\n"
        f"matrix are {record['allowed, MB']:,.0f} MB.\n"
    )


def filled(page: str, name: str, text: str) -> str:
    """The page with a text between its two marks."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    return before + start + text + end + rest.partition(end)[2]


PARTS: tuple[tuple[str, str, Path, Callable[[Mapping[str, Any]], str]], ...] = (
    ("compress_rivals", "rivals", DOCS / "methods" / "post-training.md", summary),
    ("compress_rivals", "rivals", DOCS / "measured" / "post-training.md", rivals),
    ("compress_ablation", "pays", DOCS / "methods" / "post-training.md", pays),
    ("compress_ablation", "ablation", DOCS / "measured" / "post-training.md", ablation),
    ("compress_scale_100M", "scale", DOCS / "measured" / "post-training.md", scale),
    ("compress_pitch_tiny", "pitch", DOCS / "tutorials" / "compress.md", pitch),
    ("compress_pitch_full", "full pitch", DOCS / "tutorials" / "compress.md", pitch),
)
"""Record, mark, page, what is said."""


def pages() -> dict[Path, str]:
    """What each page says by the records."""
    texts: dict[Path, str] = {}
    for name, mark, page, said in PARTS:
        record = json.loads((RESULTS / f"{name}.json").read_text())
        texts[page] = filled(texts.get(page) or page.read_text(), mark, said(record))
    return texts


def main() -> None:
    """Write pictures and pages."""
    draw(json.loads((RESULTS / "compress_rivals.json").read_text()))
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
