"""``torchlift demo``: the idea, on data that need no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import Debug, Json

if TYPE_CHECKING:
    from torch import nn

EXAMPLE = """Examples:

    torchlift demo
    torchlift demo --out runs/demo --overwrite"""

BUDGET, SEEDS, RATE = 40.0, 3, 0.01


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

    Plain training has a tuned learning rate and a cosine schedule: the table is
    honest about who wins.
    """
    del resume, debug
    if budget <= 0 or seeds < 1:
        raise ValueError(f"demo needs a positive --budget and at least one seed, got {budget} and {seeds}")
    import functools

    import torch

    from torchlift import data
    from torchlift.cli.output import note, show
    from torchlift.cli.pages import read_json, try_rebuild
    from torchlift.run import compare

    splits = data.digits(0)
    note(f"digits, a 64-32-32-10 network, {seeds} seeds, {budget:g} plain epochs for each run")
    comparison = compare(
        small_net,
        splits.train,
        splits.valid,
        splits.test,
        recipes=lifts(),
        seeds=seeds,
        budget=budget,
        optimizer=functools.partial(torch.optim.AdamW, lr=RATE, weight_decay=1e-4),
        schedule="cosine",
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
    show(json, results | {"out": out, "report": report}, comparison.table() + where)


def small_net() -> "nn.Sequential":
    """The network to be trained."""
    from torchlift.models import MLP

    return MLP(64, 32, 32, 10)


def lifts() -> dict[str, Any]:
    """Function space, weight space, and a lift that comes back sparse."""
    from torchlift.lifts import Expand, SoftMask
    from torchlift.recipes import NeuralLifting

    return {
        "neural lifting": NeuralLifting(where="activation2", features=32, width=64),
        "linear lifting": Expand(side="both", rank=0.5),
        "soft mask": SoftMask(strength=1e-4),
    }


VERBS = [(demo, "demo", EXAMPLE)]
