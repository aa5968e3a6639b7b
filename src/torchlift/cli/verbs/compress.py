"""``torchlift compress``: a trained model, made small on a handful of inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from torchlift.cli.flags import WHAT, WHERE, ModelFlags, ModelPath

if TYPE_CHECKING:
    from torchlift.data.folders import MeanStd

COMPRESS = """Examples:

    torchlift compress runs/iris --data iris.csv --bits 4 --to small.tl
    torchlift compress --model my_net.py:Net --weights net.pt \\
        --data pictures/ --bytes 20000 --to small.tl
    torchlift predict small.tl new_pictures/ --model my_net.py:Net"""


def compress(
    path: ModelPath = None,
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    to: Annotated[Path, Parameter(group=WHERE, help="The packed file to write.")],
    bytes: Annotated[int | None, Parameter(group=WHAT, help="The most bytes of the file.")] = None,
    macs: Annotated[float | None, Parameter(group=WHAT, help="The most multiply-adds of a sample.")] = None,
    bits: Annotated[int | None, Parameter(group=WHAT, help="Bits of each weight, 2 to 8.")] = None,
    ratio: Annotated[float | None, Parameter(group=WHAT, help="The fraction of channels to cut.")] = None,
    latency: Annotated[float | None, Parameter(group=WHAT, help="The most milliseconds of a call.")] = None,
    accuracy: Annotated[float | None, Parameter(group=WHAT, help="The accuracy to keep.")] = None,
    sparsity: Annotated[float | None, Parameter(group=WHAT, help="The fraction of weights to zero.")] = None,
    polish: Annotated[float, Parameter(group=WHAT, help="Epochs of distillation at the end.")] = 0,
    samples: Annotated[int, Parameter(group=WHAT, help="How many calibration samples to use.")] = 512,
    keep: Annotated[tuple[str, ...], Parameter(group=WHAT, help="Layers to leave alone; repeat.")] = (),
    mean: Annotated[
        str | None,
        Parameter(
            group=WHAT,
            help="Mean of each channel that the model was trained with, of pixels from 0 to 1: "
            "0.485,0.456,0.406 (default: of the run, or of these pictures).",
        ),
    ] = None,
    std: Annotated[
        str | None, Parameter(group=WHAT, help="Their standard deviation: 0.229,0.224,0.225.")
    ] = None,
    report: Annotated[Path | None, Parameter(group=WHERE, help="Write a page here, too.")] = None,
) -> None:
    """Make a trained model small, from the inputs of --data; their labels are not used."""
    from torchlift.cli.datasets import load_data
    from torchlift.cli.output import print_result
    from torchlift.cli.weights import open_model
    from torchlift.compress.call import compress as run
    from torchlift.deploy.card import schema_card
    from torchlift.deploy.predicting import load_card
    from torchlift.tree import each

    if flags.data is None:
        raise ValueError(
            "compress needs calibration inputs: pass --data NAME, a file, or package.module:function"
        )
    own_card = {} if path is None else load_card(path)
    scale = channel_scale(mean, std) or card_scale(own_card)
    data = load_data(flags.data, flags.data_folder, 0, scale=scale)
    if mean is not None and not (Path(flags.data).is_dir() and (data.schema or {}).get("kind") == "pictures"):
        raise ValueError(f"--mean and --std are for a folder of pictures, which {flags.data} is not")
    model, _ = open_model(flags, path, data)
    card = schema_card(data.schema or {}, data.loss) if path is None else own_card
    some = each(lambda t: t[:samples], data.train) if isinstance(data.train, tuple | dict) else data.train
    valid = data.valid if data.loss == "cross_entropy" else None
    small = run(
        model,
        some,
        bytes=bytes,
        macs=macs,
        bits=bits,
        ratio=ratio,
        latency=latency,
        accuracy=accuracy,
        sparsity=sparsity,
        polish=polish,
        keep=keep,
        valid=valid,
        progress=not flags.json,
        card=card,
    )
    small.save(to)
    if report is not None:
        small.report(report)
    print_result(flags.json, small.card | {"path": str(to)}, f"{small}\n{to}")


def channel_scale(mean: str | None, std: str | None) -> "MeanStd | None":
    """What --mean and --std say."""
    if mean is None or std is None:
        if mean != std:
            raise ValueError("--mean and --std go together: pass both")
        return None
    try:
        return [float(word) for word in mean.split(",")], [float(word) for word in std.split(",")]
    except ValueError as error:
        raise ValueError(f"--mean and --std are numbers with commas between them ({error})") from None


def card_scale(card: Mapping[str, Any]) -> "MeanStd | None":
    """How a card says that pictures are scaled."""
    inputs = card.get("input", {})
    return (inputs["mean"], inputs["std"]) if inputs.get("kind") == "pictures" else None


VERBS = [(compress, "compress", COMPRESS)]
