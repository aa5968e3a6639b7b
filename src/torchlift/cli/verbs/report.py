"""``torchlift report``: a folder's page, drawn again."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import Debug, Json

EXAMPLE = """Examples:

    torchlift fit --model mlp --data iris.csv --out runs/iris
    torchlift report runs/iris         # also of a run that has not finished
    torchlift report small.tl          # inputs, outputs and size of a packed file: small.html"""


def report(
    path: Annotated[Path, Parameter(help="The folder of a run, a comparison or a search, or a packed file.")],
    *,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write report.html again from what the folder holds; of a packed file, FILE.html beside it."""
    del debug
    if not path.exists():
        raise ValueError(f"there is no folder and no file {path}")
    from torchlift.cli.output import print_result
    from torchlift.cli.pages import rebuild, write_file_page

    page = rebuild(path) if path.is_dir() else write_file_page(path)
    print_result(json, {"report": page}, str(page))


VERBS = [(report, "report", EXAMPLE)]
