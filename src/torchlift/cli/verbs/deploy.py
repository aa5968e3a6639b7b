"""``torchlift measure``, ``export`` and ``predict``: what a model weighs, how it leaves, what it says."""

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import WHERE, ModelFlags

MEASURE = """Examples:

    torchlift measure runs/digits
    torchlift measure small.tl --json
    torchlift measure --model lenet5 --example 1,3,32,32
    torchlift measure --model mlp --data digits \\
        --weights runs/mlp/model.safetensors
    torchlift measure --model my_net.py:make --example 32,5 --json"""

EXPORT = """Examples:

    torchlift export runs/digits --to mlp.onnx
    torchlift export --model mlp --data digits \\
        --weights runs/mlp/model.safetensors --to mlp.onnx"""


PREDICT = """Examples:

    torchlift predict runs/iris new.csv --out predictions.csv
    torchlift predict small.tl pictures/ --model my_net.py:make
    torchlift predict runs/digits x.npz --json"""

Place = Annotated[str | None, Parameter(help="A run's folder or a packed file, in place of --model.")]


def measure(place: Place = None, /, flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags()) -> None:
    """Count a model's parameters, bytes and multiply-adds, and time it on this machine."""
    from torchlift import deploy
    from torchlift.cli.output import lines, show
    from torchlift.cli.weights import open_model

    model, example = open_model(flags, place)
    try:
        measured = deploy.measure(model, example)
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"the model does not take an input of shape {tuple(example.shape)}: {reason}"
        ) from error
    facts = {
        "parameters": f"{measured.params:,}",
        "non-zero": f"{measured.nonzero:,}",
        "bits": f"{measured.bits:,}",
        "file": f"{measured.file_bytes:,} bytes",
        "entropy bound": f"{measured.bound_bytes:,} bytes",
        "multiply-adds": f"{measured.macs:,} per sample",
        "latency": f"{measured.latency_ms:.3g} ms at batch {len(example)}",
    }
    show(flags.json, dataclasses.asdict(measured) | {"example": list(example.shape)}, lines(facts))


def export(
    place: Place = None,
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    to: Annotated[Path, Parameter(group=WHERE, help="The file to write; its ending says what: .onnx, .pt2.")],
) -> None:
    """Write a model as ONNX or as a torch.export program."""
    from torchlift import deploy
    from torchlift.cli.output import show
    from torchlift.cli.weights import open_model

    model, example = open_model(flags, place)
    deploy.export(model, example, to)
    show(flags.json, {"path": to, "bytes": to.stat().st_size}, f"{to} ({to.stat().st_size:,} bytes)")


def predict(
    place: Annotated[str, Parameter(help="A run's folder or a packed file.")],
    data: Annotated[str, Parameter(help="A .csv file, a folder of pictures, or an .npz file.")],
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    out: Annotated[Path | None, Parameter(group=WHERE, help="The .csv file to write.")] = None,
) -> None:
    """Say what a delivered model makes of new data: names of classes with probabilities, or values."""
    from torchlift.cli.output import show
    from torchlift.cli.weights import open_run
    from torchlift.deploy.predicting import load_card
    from torchlift.deploy.predicting import predict as run

    card = load_card(place)
    made = run(open_run(flags, place, card), data, card=card)
    rows = made.rows()
    if out is not None:
        made.save(out)
    shown = [", ".join(f"{key} {value}" for key, value in row.items()) for row in rows[:20]]
    more = [f"… {len(rows)} samples"] if len(rows) > 20 else []
    show(flags.json, {"rows": rows, "out": out}, "\n".join([*shown, *more, *([str(out)] if out else [])]))


VERBS = [(measure, "measure", MEASURE), (export, "export", EXPORT), (predict, "predict", PREDICT)]
