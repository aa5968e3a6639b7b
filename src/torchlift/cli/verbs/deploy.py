"""``torchlift measure``, ``export`` and ``predict``: what a model weighs, how it leaves, what it says."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import WHAT, WHERE, ModelFlags, ModelPath

MEASURE = """Examples:

    torchlift measure runs/iris
    torchlift measure small.tl --json
    torchlift measure runs/pictures --model my_net.py:Net
    torchlift measure --model my_net.py:Net --weights net.pt \\
        --example 1,3,32,32"""

EXPORT = """Examples:

    torchlift export runs/iris --to iris.onnx
    torchlift export runs/digits --integer --data digits --to fast.onnx
    torchlift export runs/pictures --model my_net.py:Net --to net.onnx
    torchlift export --model my_net.py:Net --weights net.pt \\
        --example 1,3,32,32 --to net.pt2"""


PREDICT = """Examples:

    torchlift fit --model mlp --data iris.csv --out runs/iris
    torchlift predict runs/iris new.csv --out predictions.csv
    torchlift predict small.tl pictures/ --model my_net.py:Net
    torchlift predict runs/digits x.npz --json"""


def measure(
    path: ModelPath = None, /, flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags()
) -> None:
    """Count a model's parameters, bytes and multiply-adds, and time it on this machine."""
    from torchlift import deploy
    from torchlift.cli.output import lines, print_result
    from torchlift.cli.weights import open_model
    from torchlift.deploy.predicting import load_card

    model, example = open_model(flags, path)
    card = None if path is None else load_card(path)
    try:
        measured = deploy.measure(model, example, card=card)
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"the model does not take an input of shape {tuple(example.shape)}: {reason}"
        ) from error
    facts = {
        "parameters": f"{measured.params:,}",
        "non-zero": f"{measured.nonzero:,}",
        "bits": f"{measured.bits:,} ({measured.bits / max(measured.params, 1):.3g} per parameter)",
        "file": f"{measured.file_bytes:,} bytes",
        "entropy bound": f"{measured.bound_bytes:,} bytes",
        "multiply-adds": f"{measured.macs:,} per sample",
        "latency": f"{measured.latency_ms:.3g} ms at batch {len(example)}",
    }
    print_result(flags.json, dataclasses.asdict(measured) | {"example": list(example.shape)}, lines(facts))


def export(
    path: ModelPath = None,
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    to: Annotated[Path, Parameter(group=WHERE, help="The file to write; its ending says what: .onnx, .pt2.")],
    integer: Annotated[
        bool, Parameter(group=WHAT, help="Compute with 8-bit integers where faster; ranges from --data.")
    ] = False,
    samples: Annotated[int, Parameter(group=WHAT, help="How many of the data set the ranges.")] = 256,
) -> None:
    """Write a model as ONNX or as a torch.export program; of a run its card, too, which says what goes in."""
    from torchlift import deploy
    from torchlift.cli.output import print_result
    from torchlift.cli.weights import calibration_of, open_model
    from torchlift.deploy.predicting import load_card
    from torchlift.files import write_file
    from torchlift.packed.file import card_path

    model, example = open_model(flags, path)
    data = calibration_of(flags, samples) if integer else None
    exported = deploy.export(model, example, to, integer=integer, calibration=data)
    size, said = to.stat().st_size, exported.card
    if path is not None:
        card = load_card(path) | ({"export": said} if said else {})
        write_file(card_path(to), json.dumps(card, indent=1).encode())
    speed = (
        f"; {said['ratio']:.2f} of the float time, output error {said['output_error']:.2g}" if integer else ""
    )
    print_result(flags.json, {"path": to, "bytes": size, **said}, f"{to} ({size:,} bytes{speed})")


def predict(
    path: Annotated[str, Parameter(help="A run's folder or a packed file.")],
    data: Annotated[str, Parameter(help="A .csv file, a folder of pictures, or an .npz file.")],
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    out: Annotated[Path | None, Parameter(group=WHERE, help="The .csv file to write.")] = None,
) -> None:
    """Say what a delivered model makes of new data: names of classes with probabilities, or values."""
    from torchlift.cli.output import print_result
    from torchlift.cli.weights import open_run_model
    from torchlift.deploy.predicting import load_card
    from torchlift.deploy.predicting import predict as run

    card = load_card(path)
    predictions = run(open_run_model(flags, path, card), data, card=card)
    rows = predictions.rows()
    if out is not None:
        predictions.save(out)
    shown = [", ".join(f"{key} {value}" for key, value in row.items()) for row in rows[:20]]
    more = [f"… {len(rows)} samples"] if len(rows) > 20 else []
    print_result(
        flags.json, {"rows": rows, "out": out}, "\n".join([*shown, *more, *([str(out)] if out else [])])
    )


VERBS = [(measure, "measure", MEASURE), (export, "export", EXPORT), (predict, "predict", PREDICT)]
