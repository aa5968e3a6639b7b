"""``torchlift report``: a folder's page, drawn again."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import Debug, Json

EXAMPLE = """Examples:

    torchlift fit --model mlp --data iris.csv --out runs/iris
    torchlift report runs/iris         # also of a run that has not finished
    torchlift report runs/demo --json"""


def report(
    folder: Annotated[Path, Parameter(help="The folder of a run, a comparison or a search.")],
    *,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write report.html again from what the folder holds."""
    del debug
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    from torchlift.cli.output import print_result
    from torchlift.cli.pages import rebuild

    path = rebuild(folder)
    print_result(json, {"report": path}, str(path))


VERBS = [(report, "report", EXAMPLE)]
