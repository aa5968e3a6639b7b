"""``torchlift demo``: the idea, on data that need no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import Debug, Json

if TYPE_CHECKING:
    from torch import nn

    from torchlift.train.run import Result

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
    overwrite: Annotated[bool, Parameter(help="Start anew.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare plain training and lifts at equal cost on handwritten digits; a minute or two.

    A small convolutional network, trained plainly (AdamW at its best rate, a
    cosine schedule), in normalized coordinates that are folded away, and so
    that it ends in a file a tenth of its size.
    """
    del resume, debug
    if budget <= 0 or seeds < 1:
        raise ValueError(f"demo needs a positive --budget and at least one seed, got {budget} and {seeds}")
    import functools

    import torch

    from torchlift import data
    from torchlift.cli.output import note, show
    from torchlift.cli.pages import read_json, try_rebuild
    from torchlift.experiments import compare

    torch.set_num_threads(1)  # a network this small is slower on two
    splits = data.digits(0)
    note(f"digits, a small convolutional network, {seeds} seeds, {budget:g} plain epochs for each run")
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
    report = try_rebuild(out)
    where = f"\n\nThe whole story: {report}" if report else ""
    sizes = {name: packed(runs) for name, runs in comparison.results.items()}
    full = sum(4 * p.numel() for p in comparison.results["plain"][0].model.parameters())
    files = "\n".join(
        f"{name:<24}{size:>8,.0f} bytes in its file, {full / size:.1f} times fewer than float32"
        for name, size in sizes.items()
    )
    places = {"out": out, "report": report, "bytes": sizes, "float32_bytes": full}
    show(json, results | places, f"{comparison.table()}\n\n{files}{where}")


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


def packed(runs: "list[Result]") -> float:
    """Bytes of the packed file, the mean over seeds."""
    import tempfile

    from torchlift.deploy import save

    with tempfile.TemporaryDirectory() as folder:
        sizes: list[int] = []
        for run in runs:
            place = Path(folder) / "model.tl"
            save(run.model, place)
            sizes.append(place.stat().st_size)
    return sum(sizes) / len(sizes)


def lifts() -> dict[str, Any]:
    """Normalized and folded; the same, and then as few bits as the file may have."""
    from torchlift.lifts import Normalize
    from torchlift.recipes import Chain, Smol

    return {
        "folded norm": Normalize(),
        "folded norm, few bits": Chain({"train": Normalize(), "bits": Smol(bytes=BYTES)}),
    }


VERBS = [(demo, "demo", EXAMPLE)]
