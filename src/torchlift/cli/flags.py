"""The flags verbs share. What is left out comes from the TOML file, then from the library's defaults."""

import dataclasses
import math
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt
from cyclopts import Group, Parameter

WHAT = Group("What to train", sort_key=0)
HOW = Group("How", sort_key=1)
WHERE = Group("Where", sort_key=2)

JsonFlag = Annotated[
    bool, Parameter(group=WHERE, help="Print the result as JSON, and nothing else, on stdout.")
]
Debug = Annotated[bool, Parameter(group=WHERE, help="Show tracebacks (also: TORCHLIFT_DEBUG=1).")]
Pairs = tuple[str, ...]
Positive = Annotated[float, Gt(0), Lt(math.inf)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0), Lt(2**63)]
ModelPath = Annotated[str | None, Parameter(help="A run's folder or a packed file, instead of --model.")]
JOBS = Annotated[
    int | None, Parameter(group=HOW, help="Processes that share the runs; 0: one per core (default: none).")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitFlags:
    """Settings of :func:`torchlift.fit` that are handed on as they are; None leaves the library's default."""

    loss: Annotated[
        Literal["cross_entropy", "mse", "bce"] | None,
        Parameter(group=HOW, help="Default: what suits the data."),
    ] = None
    schedule: Annotated[
        Literal["constant", "cosine"] | None,
        Parameter(group=HOW, help="Of the learning rate in every phase."),
    ] = None
    epochs: Annotated[
        Positive | None,
        Parameter(
            name=["--epochs", "--budget"],
            group=HOW,
            help="Passes over the data; in compare, the cost in epochs of plain training.",
        ),
    ] = None
    batch_size: Annotated[Count | None, Parameter(group=HOW, help="Samples per step (default: 128).")] = None
    clip: Annotated[Positive | None, Parameter(group=HOW, help="Clip the gradient's norm.")] = None
    keep: Annotated[
        Literal["last", "best"] | None, Parameter(group=HOW, help="Which weights a phase hands on.")
    ] = None
    seed: Annotated[
        Seed | None, Parameter(group=HOW, help="Of weights, data order and data split (default: 0).")
    ] = None
    device: Annotated[str | None, Parameter(group=HOW, help="auto, cpu, cuda, … (default: auto).")] = None
    precision: Annotated[
        str | None, Parameter(group=HOW, help="32, bf16-mixed, … (needs torchlift[dist]).")
    ] = None
    resume: Annotated[bool, Parameter(group=WHERE, help="Go on where the run in --out stopped.")] = False
    overwrite: Annotated[bool, Parameter(group=WHERE, help="Start again in a used --out.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags(FitFlags):
    """What else reads alike as a flag and in the TOML file."""

    model: Annotated[
        str | None,
        Parameter(
            group=WHAT, help="package.module:factory, file.py:factory, or a built-in name (mlp, lenet5, …)."
        ),
    ] = None
    data: Annotated[
        str | None,
        Parameter(
            group=WHAT,
            help="A .csv, .npz, folder of pictures (one per class) or of .npy; built-in name (digits, …), "
            "or package.module:function.",
        ),
    ] = None
    data_folder: Annotated[
        str | None,
        Parameter(group=WHAT, help="Where the files of built-in data are (default: TORCHLIFT_DATA)."),
    ] = None
    optimizer: Annotated[
        str | None, Parameter(group=HOW, help="sgd, adamw, avagrad, … (torch.optim and torchlift.optim).")
    ] = None
    lr: Annotated[Positive | None, Parameter(group=HOW, help="Learning rate.")] = None
    augment: Annotated[
        Literal["crop-flip"] | None, Parameter(group=HOW, help="Random changes to images.")
    ] = None
    out: Annotated[str | None, Parameter(group=WHERE, help="The run's folder (default: runs/…).")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(RunFlags):
    """What fit, compare and tune have in common; every field may stand in the TOML file too."""

    config: Annotated[
        str | None, Parameter(group=WHERE, help="A TOML file with any of these settings; flags override it.")
    ] = None
    arg: Annotated[
        Pairs,
        Parameter(group=WHAT, help="key=value for the model's factory; repeat. E.g. --arg hidden=[64,64]."),
    ] = ()
    recipe: Annotated[
        Pairs,
        Parameter(
            name=["--recipe", "--lift"],
            group=WHAT,
            help="A recipe (plain, neural-lifting, sparsify, …), a single lift (expand, soft-mask, …) to "
            "lift, fit and project once, or package.module:recipe. --recipe help lists all.",
        ),
    ] = ()
    set: Annotated[
        Pairs,
        Parameter(
            group=WHAT,
            help="key=value for the recipe; repeat. Values are TOML: --set mix=0.3 --set lrs=[0.1,0.01,0.01]",
        ),
    ] = ()
    opt: Annotated[
        Pairs, Parameter(group=HOW, help="key=value for the optimizer; repeat. E.g. --opt momentum=0.9.")
    ] = ()
    json: JsonFlag = False
    debug: Debug = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """A model and an example input, for measuring and exporting."""

    model: Annotated[
        str | None, Parameter(group=WHAT, help="package.module:factory, file.py:factory, or a built-in name.")
    ] = None
    arg: Annotated[Pairs, Parameter(group=WHAT, help="key=value for the model's factory; repeat.")] = ()
    weights: Annotated[
        str | None,
        Parameter(group=WHAT, help="A state dict (.safetensors, .pt), or a packed file."),
    ] = None
    example: Annotated[
        str | None,
        Parameter(group=WHAT, help="Shape of an input, batch first: 1,3,32,32; tokens: 1,64:int."),
    ] = None
    data: Annotated[
        str | None, Parameter(group=WHAT, help="Take the example, and the model's sizes, from these data.")
    ] = None
    data_folder: Annotated[str | None, Parameter(group=WHAT, help="Where their files are.")] = None
    json: JsonFlag = False
    debug: Debug = False
