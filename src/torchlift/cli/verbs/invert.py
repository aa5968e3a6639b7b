"""``torchlift invert``: a network run backward."""

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from torchlift.cli.flags import HOW, WHERE, Debug, JsonFlag, Pairs

WHAT = Group("What to invert", sort_key=0)

EXAMPLE = """Examples:

    torchlift invert --model nets.py:encoder --weights encoder.safetensors \\
        --input digit.png --reg tv --alpha 0.001 --box 0,1
    torchlift invert --model nets.py:encoder --weights encoder.safetensors \\
        --observation code.npy --shape 1,28,28 --noise 0.1 --json"""


def invert(
    *,
    model: Annotated[
        str | None, Parameter(group=WHAT, help="package.module:factory or file.py:factory.")
    ] = None,
    arg: Annotated[Pairs, Parameter(group=WHAT, help="key=value for the model's factory; repeat.")] = (),
    weights: Annotated[str | None, Parameter(group=WHAT, help="A .safetensors or packed file.")] = None,
    input: Annotated[  # the flag's name
        Path | None, Parameter(group=WHAT, help="An image or array to send through the model and bring back.")
    ] = None,
    observation: Annotated[
        Path | None, Parameter(group=WHAT, help="An array of outputs (.npy, .pt) to invert, samples as rows.")
    ] = None,
    shape: Annotated[str | None, Parameter(group=WHAT, help="Shape of one input: 1,28,28.")] = None,
    sigma: Annotated[float, Parameter(group=WHAT, help="Noise added to the output of --input.")] = 0.0,
    reg: Annotated[str, Parameter(group=HOW, help="tv, l1, l2 or wavelets.")] = "tv",
    alpha: Annotated[
        float | None, Parameter(group=HOW, help="Weight of the regularizer (default 0.01).")
    ] = None,
    noise: Annotated[float | None, Parameter(group=HOW, help="Choose alpha from this noise level.")] = None,
    method: Annotated[str, Parameter(group=HOW, help="auto, fista, pdhg, bcd, adam or lbfgs.")] = "auto",
    box: Annotated[
        str | None, Parameter(group=HOW, help="Least and greatest value of an entry: 0,1.")
    ] = None,
    rival: Annotated[str, Parameter(group=HOW, help="Also by autograd: lbfgs, adam or none.")] = "lbfgs",
    max_iter: Annotated[int | None, Parameter(group=HOW, help="The most iterations.")] = None,
    seed: Annotated[int, Parameter(group=HOW, help="Of the noise.")] = 0,
    out: Annotated[Path, Parameter(group=WHERE, help="Folder for x.npy and report.html.")] = Path(
        "inversion"
    ),
    json: JsonFlag = False,
    debug: Debug = False,
) -> None:
    """Find the input behind a network's output; write it, with a page of pictures."""
    del debug
    if (input is None) == (observation is None):
        raise ValueError("give one of --input FILE and --observation FILE")
    from torchlift.cli.inverting import Request, perform
    from torchlift.cli.output import lines, print_result, readable

    request = Request(
        model=model, arg=arg, weights=weights, image=input, observation=observation, shape=shape,
        sigma=sigma, reg=reg, alpha=alpha, noise=noise, method=method, box=box, rival=rival,
        max_iter=max_iter, seed=seed, out=out,
    )  # fmt: skip
    said = perform(request)
    facts = {name: readable(value) for name, value in said["torchlift"].items() if value is not None}
    print_result(json, said, lines(facts | {"report": said["report"]}))


VERBS = [(invert, "invert", EXAMPLE)]
