"""``torchlift compress``: a trained model, made small on a handful of inputs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import WHAT, WHERE, ModelFlags, ModelPath

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
    data = load_data(flags.data, flags.data_folder, 0)
    model, _ = open_model(flags, path, data)
    card = schema_card(data.schema or {}, data.loss) if path is None else load_card(path)
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


VERBS = [(compress, "compress", COMPRESS)]
