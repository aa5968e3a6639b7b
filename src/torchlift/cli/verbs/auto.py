"""``torchlift auto``: from a model, data and constraints to the model to ship."""

from typing import Annotated

from cyclopts import Group, Parameter

from torchlift.cli.flags import JOBS, Training

LIMITS = Group("Constraints", sort_key=1)
EXAMPLE = """Examples:

    torchlift auto --model mlp --data digits --minutes 2
    torchlift auto --model lenet5 --data cifar10 --bytes 20k --minutes 30
    torchlift auto --model my_net.py:make --data mine.npz --accuracy 0.97 \\
        --latency 0.8 --minutes 10 --jobs 4 --out runs/auto --resume

Then: torchlift measure --model RUN/model.tl"""


def auto(
    flags: Annotated[Training, Parameter(name="*")] = Training(),
    *,
    bytes: Annotated[
        str | None, Parameter(group=LIMITS, help="The largest packed file: 50000, 50k, 1.5M.")
    ] = None,
    latency: Annotated[
        float | None, Parameter(group=LIMITS, help="The most milliseconds of a call on one sample.")
    ] = None,
    accuracy: Annotated[
        float | None,
        Parameter(group=LIMITS, help="The least validation metric; the smallest file that has it is taken."),
    ] = None,
    minutes: Annotated[
        float | None, Parameter(group=LIMITS, help="For the whole search (default: 10); or --budget.")
    ] = None,
    jobs: JOBS = None,
) -> None:
    """Search recipes and chains for a smaller, better model inside a budget, and say why it is the one.

    Every trial ends in a packed file that is read back and measured. --recipe
    names candidates, as often as you like; without it, all that suit the model.
    --budget: plain epochs by FLOPs in place of minutes. In --out: model.tl,
    card.json, auto.json, report.html.
    """
    from torchlift.cli.config import read_config

    limits = {"bytes": bytes, "latency": latency, "accuracy": accuracy, "minutes": minutes, "jobs": jobs}
    config = read_config(flags, **limits)

    from torchlift.cli.output import print_result
    from torchlift.cli.pages import read_json, try_rebuild
    from torchlift.cli.session import executor_of, number_of_bytes, open_session, several_recipes
    from torchlift.experiments import auto as run_auto
    from torchlift.train import rng

    session = open_session(config, "auto")
    data, out = session.data, session.out
    if data.valid is None:
        raise ValueError("auto needs validation data: --data must give (train, valid, test)")
    with rng.scope(config.seed or 0):
        model = session.make_model()
    settings = {name: value for name, value in session.settings.items() if name != "epochs"}
    result = run_auto(
        model,
        data.train,
        data.valid,
        test=data.test,
        bytes=None if config.bytes is None else number_of_bytes(config.bytes),
        latency=config.latency,
        accuracy=config.accuracy,
        minutes=config.minutes,
        budget=config.epochs,
        candidates=several_recipes(config) if config.recipe else None,
        executor=executor_of(config),
        out=out,
        schema=data.schema,
        **settings,
    )
    paths = {"out": out, "model": result.file, "report": try_rebuild(out)}
    where = "\n".join(f"{name}: {path}" for name, path in paths.items() if path)
    print_result(flags.json, read_json(out / "auto.json") | paths, f"{result.table()}\n\n{where}")


VERBS = [(auto, "auto", EXAMPLE)]
