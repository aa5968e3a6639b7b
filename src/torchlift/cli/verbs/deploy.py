"""``torchlift measure`` and ``torchlift export``: what a model weighs, and how it leaves the house."""

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import WHERE, ModelFlags

MEASURE = """Examples:

    torchlift measure --model lenet5 --example 1,3,32,32
    torchlift measure --model mlp --data digits \\
        --weights runs/mlp/model.safetensors
    torchlift measure --model my_net.py:make --example 32,5 --json"""

EXPORT = """Examples:

    torchlift export --model mlp --data digits \\
        --weights runs/mlp/model.safetensors --to mlp.onnx"""


def measure(flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags()) -> None:
    """Count a model's parameters, bytes and multiply-adds, and time it on this machine."""
    from torchlift import deploy
    from torchlift.cli.output import lines, show
    from torchlift.cli.weights import open_model

    model, example = open_model(flags)
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
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    to: Annotated[Path, Parameter(group=WHERE, help="The file to write; its ending says what: .onnx, .pt2.")],
) -> None:
    """Write a model as ONNX or as a torch.export program."""
    from torchlift import deploy
    from torchlift.cli.output import show
    from torchlift.cli.weights import open_model

    model, example = open_model(flags)
    deploy.export(model, example, to)
    show(flags.json, {"path": to, "bytes": to.stat().st_size}, f"{to} ({to.stat().st_size:,} bytes)")


VERBS = [(measure, "measure", MEASURE), (export, "export", EXPORT)]
