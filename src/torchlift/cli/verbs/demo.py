"""``torchlift demo``: the idea, on data that need no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import Debug, JsonFlag

if TYPE_CHECKING:
    from torch import nn

    from torchlift.cli.demo_story import DemoNetwork

EXAMPLE = """Examples:

    torchlift demo
    torchlift demo --out runs/demo --overwrite"""

BUDGET, SEEDS = 30.0, 5
RATE = 0.01
"""Of 0.01, 0.02, 0.03 and 0.04 the largest at which plain training ends well on every seed."""
BYTES = 4700
"""The file to end in: the network's weights are 57,512 bytes of float32."""


def demo(
    *,
    out: Annotated[Path, Parameter(help="Where runs and report go.")] = Path("runs/demo"),
    budget: Annotated[float, Parameter(help="Cost of each run, in epochs of plain training.")] = BUDGET,
    seeds: Annotated[int, Parameter(help="How many paired seeds.")] = SEEDS,
    resume: Annotated[bool, Parameter(help="Go on where it stopped (it does so anyway).")] = False,
    overwrite: Annotated[bool, Parameter(help="Start again.")] = False,
    json: JsonFlag = False,
    debug: Debug = False,
) -> None:
    """Train, compress and deliver a small network for handwritten digits; a minute or two.

    A small convolutional network, trained plainly (AdamW at its best rate, a
    cosine schedule), in normalized coordinates that are folded away, and so
    that it ends in a file a tenth of its size, all at equal cost; then
    compressed without labels, and written as the file to hand on.
    """
    del resume, debug
    if budget <= 0 or seeds < 1:
        raise ValueError(f"demo needs a positive --budget and at least one seed, got {budget} and {seeds}")
    import functools

    import torch

    from torchlift import data
    from torchlift.cli import demo_story as story
    from torchlift.cli.output import print_note, print_result
    from torchlift.cli.pages import read_json
    from torchlift.experiments import compare

    torch.set_num_threads(1)  # a network this small is slower on two
    splits = data.digits(0)
    print_note(f"digits, a small convolutional network, {seeds} seeds, {budget:g} plain epochs for each run")
    comparison = compare(
        small_net,
        splits.train,
        splits.valid,
        splits.test,
        recipes=lifts(),
        seeds=seeds,
        budget=budget,
        optimizer=functools.partial(torch.optim.AdamW, lr=RATE, weight_decay=1e-2),
        schedule="cosine",
        batch_size=64,
        keep="last",
        out=out,
        resume=not overwrite,
        overwrite=overwrite,
        progress=not json,
    )
    results = read_json(out / "comparison.json")
    for recipe in results["recipes"].values():
        del recipe["history"]
    inputs, test = splits.train[0], splits.test
    rows = story.before_and_after(comparison, inputs, test, out)
    file, images = story.deliver_demo(comparison.results["folded norm"][0], inputs, test, out / "delivered")
    picture = story.draw_demo(rows, out / "before-after.svg")
    use = f"torchlift predict {file} {images}"
    report = try_write(out, rows, f"The delivered file names the digits of new images:\n\n`{use}`")
    where = f"\n\nThe whole story: {report}" if report else ""
    summary = f"{comparison.table()}\n\n{story.demo_table(rows)}{where}\n\nUse the delivered file: {use}"
    paths = {"out": out, "report": report, "delivered": story.as_data(rows), "file": file, "use": use}
    paths["picture"] = picture
    print_result(json, results | paths, summary)


def try_write(out: Path, rows: "list[DemoNetwork]", use: str) -> Path | None:
    """The page, where the extra that draws it is installed."""
    from torchlift.cli.demo_story import with_deliveries
    from torchlift.cli.output import print_note
    from torchlift.cli.pages import page_of_folder
    from torchlift.report import write

    try:
        return write(with_deliveries(page_of_folder(out, "comparison.json"), rows, use), out / "report.html")
    except ImportError as error:
        print_note(f"torchlift: no report: {error}; pip install 'torchlift[report]', then run again")
        return None


def small_net() -> "nn.Sequential":
    """The network to be trained: 14,378 weights."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def lifts() -> dict[str, Any]:
    """Normalized and folded; the same, and then as few bits as the file may have."""
    from torchlift.lifts import Normalize
    from torchlift.recipes import Chain, Smol

    return {
        "folded norm": Normalize(),
        "folded norm, few bits": Chain({"train": Normalize(), "bits": Smol(bytes=BYTES)}),
    }


VERBS = [(demo, "demo", EXAMPLE)]
