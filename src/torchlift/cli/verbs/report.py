"""``torchlift report``: the page of a folder, drawn again, or of a model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import WHERE, ModelFlags

EXAMPLE = """Examples:

    torchlift fit --model mlp --data iris.csv --out runs/iris
    torchlift report runs/iris         # also of a run that has not finished
    torchlift report small.tl          # of a packed file: small.html
    torchlift report --model my_net.py:Net --weights net.pt --example 1,3,32,32"""


def report(
    path: Annotated[
        Path | None, Parameter(help="The folder of a run, a comparison or a search, or a packed file.")
    ] = None,
    /,
    flags: Annotated[ModelFlags, Parameter(name="*")] = ModelFlags(),
    *,
    to: Annotated[Path | None, Parameter(group=WHERE, help="The page to write.")] = None,
) -> None:
    """Write report.html again from what a folder holds; of a packed file or a model, the page of its layers,
    size, inputs and outputs."""
    if path is not None and not path.exists():
        raise ValueError(f"there is no folder and no file {path}")
    if path is None and flags.model is None and flags.weights is None:
        raise ValueError(
            "nothing to report on: pass a run's folder, a packed file, or --model with --weights"
        )
    from torchlift.cli.output import print_result
    from torchlift.cli.pages import rebuild, write_model_page

    page = rebuild(path, to) if path is not None and path.is_dir() else write_model_page(flags, path, to)
    print_result(flags.json, {"report": page}, str(page))


VERBS = [(report, "report", EXAMPLE)]
