"""Write what the records of compress say into its pages, with pictures.

python benchmarks/compress_page.py
"""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlift.report.figures import Points, Scatter
from torchlift.report.standalone import svg

ROOT = Path(__file__).parent.parent
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images" / "results"
PAGES = {
    "rivals": ROOT / "docs" / "methods" / "post-training.md",
    "pitch": ROOT / "docs" / "tutorials" / "compress.md",
}
FAMILIES = ("ours", "GPTQ", "rounding", "palette", "Torch-Pruning", "ONNX Runtime", "original")
LEVEL = 0.5
"""Points of accuracy that count as level: fewer than three test digits of 539."""

Cells = dict[str, dict[str, list[dict[str, Any]]]]


def by_network(record: Mapping[str, Any]) -> Cells:
    """{network: {method: cells of all seeds}}."""
    found: Cells = {}
    for key, cell in record["cells"].items():
        network, _, method = key.split("; ")
        found.setdefault(network, {}).setdefault(method, []).append(cell)
    return found


def mean(cells: list[dict[str, Any]], key: str) -> float:
    """Over seeds."""
    return statistics.mean(cell[key] for cell in cells)


def known(methods: Mapping[str, list[dict[str, Any]]]) -> dict[str, tuple[float, float, float]]:
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
    rows, points = known(methods), list[Points]()
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


def duels(methods: Mapping[str, list[dict[str, Any]]]) -> dict[str, float]:
    """For each rival: our accuracy in no more than 1.02 times its bytes, less the rival's, over seeds.

    Which of ours that is, is chosen in each seed by the error of outputs on unlabelled inputs.
    """
    took = known(methods)
    names = [n for n in took if family(n) not in ("ours", "original")]
    mine = [methods[n] for n in took if family(n) == "ours"]
    gaps: dict[str, float] = {}
    for name in names:
        own: list[float] = []
        for seed, rival in enumerate(methods[name]):
            small = [c[seed] for c in mine if seed < len(c) and c[seed]["bytes"] <= 1.02 * rival["bytes"]]
            best = min(small, key=lambda cell: cell["output error"], default=None)
            own.append(float("nan") if best is None else best["accuracy"] - rival["accuracy"])
        gaps[name] = statistics.mean(own)
    return gaps


def beside_rounding(methods: Mapping[str, list[dict[str, Any]]]) -> str:
    """How often our outputs are nearer than those of rounding to as many bits, on unseen inputs."""
    pairs = [
        (mine["output error"], theirs["output error"])
        for bits in (8, 4, 3, 2)
        for mine, theirs in zip(
            methods.get(f"ours, {bits} bits", []), methods.get(f"rounding, {bits} bits", []), strict=False
        )
    ]
    nearer = sum(mine <= theirs for mine, theirs in pairs)
    return f"Outputs on unseen inputs nearer than with rounding to as many bits: {nearer} of {len(pairs)}."


def rivals(record: Mapping[str, Any], pictures: Path | None) -> str:
    """Tables of all networks."""
    text = f"\nPartial: {record['partial']}.\n\n" if "partial" in record else "\n"
    for network, methods in by_network(record).items():
        seeds = len(methods["original"])
        figures = [("bytes", by_bytes(network, methods))]
        calls = methods.get("call times", [{}])[0].get("calls")
        figures += [("calls", by_time(network, calls))] if calls else []
        text += f"### {network}, {seeds} seed{'s' if seeds > 1 else ''}\n\n"
        for kind, figure in figures:
            name = f"compress-{network.lower().replace(' ', '-')}-{kind}.svg"
            if pictures is not None:
                (pictures / name).write_text(svg(figure))
            text += f"![{figure.title}](../images/results/{name})\n"
        gaps = duels(methods)
        text += "\n| | bytes | accuracy, % | ours in no more bytes |\n|---|---|---|---|\n"
        for label, (size, right, apart) in sorted(known(methods).items(), key=lambda one: one[1][0]):
            gap = gaps.get(label)
            said = "" if gap is None else "none as small" if gap != gap else f"{gap:+.1f}"
            about = f"{right:.1f} ± {apart:.1f}" if seeds > 1 else f"{right:.1f}"
            text += f"| {label} | {size:,.0f} | {about} | {said} |\n"
        fails = [label for label, cells in methods.items() if any("fails" in cell for cell in cells)]
        text += f"\nDoes not take this network: {', '.join(fails)}.\n" if fails else ""
        behind = [label for label, gap in gaps.items() if gap < -LEVEL]
        text += f"\nBehind by more than {LEVEL} points: {', '.join(behind) or 'nowhere'}. "
        text += f"{beside_rounding(methods)}\n\n"
    return text


def pitch(record: Mapping[str, Any]) -> str:
    """The table of the pitch tracker."""
    sets, right = record["original, five test sets, %"], record["original, %"]
    text = "\n| | within 50 cents | five test sets | file |\n|---|---|---|---|\n"
    text += f"| as published | {right} % | {min(sets)} to {max(sets)} % | 1,946 kB of floats |\n"
    for key, case in record["cases"].items():
        name, sets = key.partition(";")[0], case.get("five test sets, %")
        name += " (recorded with an earlier version)" if "recorded" in case else ""
        reach = f"{min(sets)} to {max(sets)} %" if sets else ""
        text += f"| {name} | {case['within 50 cents, %']} % | {reach} | {case['bytes'] / 1000:,.0f} kB |\n"
    return text + "\n"


def filled(page: str, name: str, text: str) -> str:
    """The page with a text between its two marks."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    return before + start + text + end + rest.partition(end)[2]


def pages(pictures: Path | None = None) -> dict[Path, str]:
    """What each page says by the records."""
    found: dict[Path, str] = {}
    texts = {
        "rivals": lambda record: rivals(record, pictures),
        "pitch": pitch,
    }
    for name, file in (("rivals", "compress_rivals"), ("pitch", "compress_pitch_tiny")):
        record = json.loads((RESULTS / f"{file}.json").read_text())
        found[PAGES[name]] = filled(PAGES[name].read_text(), name, texts[name](record))
    return found


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for path, text in pages(IMAGES).items():
        path.write_text(text)
