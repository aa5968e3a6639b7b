"""``torchlift tune``: a search for settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from torchlift.cli.boundary import sigterm_interrupts
from torchlift.cli.flags import Training

if TYPE_CHECKING:
    from torchlift.experiments.tune import Tuned

SEARCH = Group("The search", sort_key=1)
EXAMPLE = """Examples:

    torchlift tune --model mlp --data digits --space lr=1e-4:1e-1:log
    torchlift tune --model lenet5 --data cifar10 --folds 5 --workers 2 \\
        --recipe neural-lifting --set where=trunk
    torchlift tune --model mlp --data digits --optimizer avagrad
    torchlift tune --config run.toml --resume \\
        --space width=16:256:log --space init=zeros,xavier

Then: torchlift fit --config RUN/best.toml"""


def tune(
    flags: Annotated[Training, Parameter(name="*")] = Training(),
    *,
    space: Annotated[
        tuple[str, ...],
        Parameter(
            group=SEARCH,
            help="key=low:high[:log] or key=a,b,c; repeat. Keys: recipe fields, lr, opt.KEY, clip, …",
        ),
    ] = (),
    trials: Annotated[
        int | None, Parameter(group=SEARCH, help="How many, over all workers and resumptions (default: 20).")
    ] = None,
    folds: Annotated[
        int | None, Parameter(group=SEARCH, help="K-fold cross-validation instead of one validation split.")
    ] = None,
    workers: Annotated[
        int | None, Parameter(group=SEARCH, help="Processes that share the study (default: 1).")
    ] = None,
    method: Annotated[
        Literal["tpe", "lines"] | None,
        Parameter(
            group=SEARCH, help="tpe: Optuna; lines: one axis of a grid after the other (default for avagrad)."
        ),
    ] = None,
    prune: Annotated[
        bool, Parameter(group=SEARCH, negative="--no-prune", help="Stop trials that fall behind.")
    ] = True,
    join: Annotated[bool, Parameter(group=SEARCH, help="Help a search that is running in --out.")] = False,
) -> None:
    """Search for the best settings of a recipe and its optimizer on validation data.

    Without --space, the recipe's own (for neural-lifting the paper's Table 4),
    else learning rate and weight decay; for avagrad lr and eps, one line search
    each. The study is a journal in --out: --resume goes on until --trials are
    done. best.toml there holds the best settings for fit.
    """
    from torchlift.cli.config import read_config

    config = read_config(flags, space=space, trials=trials, folds=folds, workers=workers)

    from torchlift.cli.output import print_result
    from torchlift.cli.pages import try_rebuild
    from torchlift.cli.searches import best_config, run_search
    from torchlift.train import Interrupted
    from torchlift.train.checkpoint import write_durable

    try:
        with sigterm_interrupts():
            tuned, out = run_search(config, method, prune, join)
    except KeyboardInterrupt as stop:
        raise Interrupted("the study is kept") from stop
    best = out / "best.toml"
    write_durable(best, best_config(config, tuned.values).encode())
    paths = {"out": out, "best_config": best, "report": try_rebuild(out)}
    print_result(flags.json, tuned.data() | paths, search_summary(tuned, paths))


def search_summary(tuned: "Tuned", paths: dict[str, Path | None]) -> str:
    """The search for people."""
    where = "\n".join(f"{name}: {path}" for name, path in paths.items() if path)
    return f"{tuned.table()}\n\n{where}\n\ntorchlift fit --config {paths['best_config']}"


VERBS = [(tune, "tune", EXAMPLE)]
