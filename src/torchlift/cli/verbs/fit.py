"""``torchlift fit``: one run."""

from typing import Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import HOW, Training

EXAMPLE = """Examples:

    torchlift fit --model mlp --data digits --epochs 20 --out runs/mlp
    torchlift fit --model my_net.py:make --data mine.npz \\
        --optimizer sgd --lr 0.05 --opt momentum=0.9 --schedule cosine
    torchlift fit --model lenet5 --data cifar10 \\
        --recipe neural-lifting --set where=trunk --set cycles=2
    torchlift fit --model mlp --data digits --lift expand --set rank=0.5
    torchlift fit --config run.toml --seed 3 --resume"""


def fit(
    flags: Annotated[Training, Parameter(name="*")] = Training(),
    *,
    tensorboard: Annotated[bool, Parameter(group=HOW, help="Write TensorBoard logs too.")] = False,
) -> None:
    """Train a model by a recipe; the run's folder gets weights, history and report.html.

    Killed at any moment, the same command with --resume goes on to the same result.
    """
    from torchlift.cli.config import read_config

    config = read_config(flags, tensorboard=tensorboard)

    from torchlift.cli.output import print_result
    from torchlift.cli.pages import read_json, try_rebuild
    from torchlift.cli.session import one_recipe, open_session
    from torchlift.train import rng
    from torchlift.train.run import fit as run_fit

    recipe = one_recipe(config)
    session = open_session(config, "fit")
    with rng.scope(config.seed or 0):
        model = session.make_model()
    data, out = session.data, session.out
    run_fit(
        model,
        data.train,
        data.valid,
        test=data.test,
        recipe=recipe,
        out=out,
        tensorboard=config.tensorboard,
        progress=not flags.json,
        schema=data.schema,
        **session.settings,
    )
    summary = read_json(out / "result.json")
    paths = {"out": out, "model": out / "model.tl", "report": try_rebuild(out)}
    print_result(flags.json, without_history(summary) | paths, run_summary(summary, paths))


def without_history(summary: dict[str, Any]) -> dict[str, Any]:
    """The account of a run, short enough to print."""
    return {name: value for name, value in summary.items() if name != "history"}


def run_summary(summary: dict[str, Any], paths: dict[str, Any]) -> str:
    """A run in a few lines."""
    from torchlift.cli.output import lines, readable

    before, after, cost = summary["before"], summary["after"], summary["cost"]
    scores = {
        f"{summary['metric']} ({score})": readable(value) for score, value in summary["results"].items()
    }
    facts = {
        "recipe": summary["settings"]["in short"],
        **scores,
        "cost": f"{cost['epochs']:.4g} plain epochs, {cost['seconds']:.1f} s",
        **targets_text(summary.get("history") or []),
        "parameters": f"{after['nonzero']:,} non-zero of {after['params']:,} (before: {before['params']:,})",
        "file": f"{after['file_bytes']:,} bytes (before: {before['file_bytes']:,})",
        "multiply-adds": readable(after["macs"]),
        "latency": f"{after['latency_ms']:.3g} ms",
    }
    return lines(facts | {name: str(path) for name, path in paths.items() if path})


def targets_text(history: list[dict[str, Any]]) -> dict[str, str]:
    """Targets of a pruning, each with what came out."""
    from torchlift.cli.output import readable

    last: dict[str, Any] = {}
    for row in history:
        last |= row
    names = [key.removesuffix("_target") for key in last if key.endswith("_target")]
    return {
        name: f"{readable(last[name])} (target {readable(last[f'{name}_target'])})"
        for name in names
        if name in last
    }


VERBS = [(fit, "fit", EXAMPLE)]
