"""``torchlift demo``: the idea, on data that need no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import Debug, Json

if TYPE_CHECKING:
    from torch import nn

    from torchlift.run import Result

EXAMPLE = """Examples:

    torchlift demo
    torchlift demo --out runs/demo --overwrite"""

BUDGET, SEEDS = 60.0, 5
RATE = 0.05
"""Of 0.003, 0.01, 0.02, 0.03, 0.05 and 0.1 the one at which plain training does best on validation data."""


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
    from torchlift.search import compare

    torch.set_num_threads(1)  # a network this small is slower on two
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
    kept = {name: nonzero(runs) for name, runs in comparison.results.items()}
    weights = "\n".join(f"{name:<24}{count:>8,.0f} weights left" for name, count in kept.items())
    places = {"out": out, "report": report, "nonzero": kept}
    show(json, results | places, f"{comparison.table()}\n\n{weights}{where}")


def small_net() -> "nn.Sequential":
    """The network to be trained."""
    from torchlift.models import MLP

    return MLP(64, 32, 32, 10)


def nonzero(runs: "list[Result]") -> float:
    """Weights that are not exactly zero, the mean over seeds."""
    return sum(int(p.count_nonzero()) for run in runs for p in run.model.parameters()) / len(runs)


def lifts() -> dict[str, Any]:
    """Normalised and folded, lifted in function space, and lifted to come back sparse."""
    from torchlift.recipes import ContinuousSparsification, FoldedNorm, NeuralLifting

    return {
        "folded norm": FoldedNorm(),
        "neural lifting": NeuralLifting(where="activation2", features=32, width=64),
        "sparsify to 25 %": ContinuousSparsification(sparsity=0.75),
    }


VERBS = [(demo, "demo", EXAMPLE)]
