"""``torchlift doctor``: is everything there?"""

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import Debug, JsonFlag

MARKS = {"ok": "✓", "missing": "–", "warning": "!", "error": "✗"}
EXAMPLE = """Examples:

    torchlift doctor
    torchlift doctor --out /scratch/runs --json
    torchlift doctor --run runs/mlp"""


def doctor(
    *,
    out: Annotated[Path, Parameter(help="The folder runs are to be written to.")] = Path("runs"),
    data: Annotated[str | None, Parameter(help="The folder of the data (default: TORCHLIFT_DATA).")] = None,
    run: Annotated[
        Path | None, Parameter(help="A run's folder to check: contents, damage, who uses it.")
    ] = None,
    json: JsonFlag = False,
    debug: Debug = False,
) -> int:
    """Check versions, extras, cores, write access and data; say how to mend what is missing.

    With --run, check the folder of a run, a comparison or a search instead.
    """
    del debug
    from torchlift.cli.health import examine
    from torchlift.cli.output import print_result

    if run is None:
        looks = list(examine(out, data))
    else:
        from torchlift.cli.folders import examine_folder

        looks = list(examine_folder(run))
    rows = [f"{MARKS[look.state]} {look.name:<14}{look.detail}" for look in looks]
    fixes = [f"\n    {look.fix}" if look.fix else "" for look in looks]
    text = "\n".join(row + fix for row, fix in zip(rows, fixes, strict=True))
    print_result(json, {"looks": [dataclasses.asdict(look) for look in looks]}, text)
    return int(any(look.state == "error" for look in looks))


VERBS = [(doctor, "doctor", EXAMPLE)]
