"""``torchlift compare``: which recipe paid off, at equal cost."""

import contextlib
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import HOW, JOBS, Training

EXAMPLE = """Examples:

    torchlift compare --model mlp --data digits \\
        --recipe neural-lifting --set neural-lifting.where=linear1
    torchlift compare --model lenet5 --data cifar10 --budget 30 --seeds 5 \\
        --recipe expand --recipe sparsify --set sparsify.sparsity=0.9 \\
        --optimizer sgd --lr 0.05 --opt momentum=0.9 --schedule cosine
    torchlift compare --config run.toml --set where=trunk \\
        --recipe narrow=neural-lifting --recipe wide=neural-lifting \\
        --set wide.width=1000
    torchlift compare --model mlp --data digits --recipe smol --tune 8 --jobs 0"""


def compare(
    flags: Annotated[Training, Parameter(name="*")] = Training(),
    *,
    seeds: Annotated[int | None, Parameter(group=HOW, help="How many paired seeds (default: 5).")] = None,
    tune: Annotated[
        int | None,
        Parameter(group=HOW, help="Trials for each recipe, plain included, before the runs (default: 0)."),
    ] = None,
    time: Annotated[
        str | None,
        Parameter(group=HOW, help="Compare at equal time: seconds for each run, or 1x for plain training's."),
    ] = None,
    jobs: JOBS = None,
) -> None:
    """Run recipes and the plain control at equal cost on the same seeds, and say which paid off.

    Settings of one recipe are given as --set NAME.key=value; without the name
    they go to all. Prints the table; comparison.json and report.html go to --out.
    """
    from torchlift.cli.config import read_config

    config = read_config(flags, seeds=seeds, tune=tune, time=time, jobs=jobs)

    from torchlift.cli.output import print_result
    from torchlift.cli.pages import read_json, try_rebuild
    from torchlift.cli.session import executor_of, open_session, several_recipes
    from torchlift.experiments import compare as run_compare

    recipes = several_recipes(config)
    session = open_session(config, "compare")
    data, out = session.data, session.out
    if data.valid is None or data.test is None:
        raise ValueError("compare needs validation and test data: --data must give (train, valid, test)")
    settings = {name: value for name, value in session.settings.items() if name not in ("epochs", "seed")}
    comparison = run_compare(
        session.make_model,
        data.train,
        data.valid,
        data.test,
        recipes=recipes,
        seeds=config.seeds or 5,
        budget=config.epochs or 10.0,
        tune=config.tune or 0,
        time=seconds(config.time),
        executor=executor_of(config),
        out=out,
        progress=not flags.json,
        schema=data.schema,
        **settings,
    )
    results = read_json(out / "comparison.json")
    for recipe in results["recipes"].values():
        del recipe["history"]
    paths = {"out": out, "report": try_rebuild(out)}
    where = "\n".join(f"{name}: {path}" for name, path in paths.items() if path)
    print_result(flags.json, results | paths, f"{comparison.table()}\n\n{where}")


def seconds(time: str | float | None) -> float | str | None:
    """A number where it is one; ``1x`` is left for the library to read."""
    with contextlib.suppress(ValueError, TypeError):
        return float(time or "none")
    return time


VERBS = [(compare, "compare", EXAMPLE)]
