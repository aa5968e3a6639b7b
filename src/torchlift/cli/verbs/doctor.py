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
    """HealthCheck versions, extras, cores, write access and data; say how to mend what is missing.

    With --run, check the folder of a run, a comparison or a search instead.
    """
    del debug
    from torchlift.cli.health import examine
    from torchlift.cli.output import print_result

    if run is None:
        checks = list(examine(out, data))
    else:
        from torchlift.cli.folders import examine_folder

        checks = list(examine_folder(run))
    rows = [f"{MARKS[check.state]} {check.name:<14}{check.detail}" for check in checks]
    fixes = [f"\n    {check.fix}" if check.fix else "" for check in checks]
    text = "\n".join(row + fix for row, fix in zip(rows, fixes, strict=True))
    print_result(json, {"checks": [dataclasses.asdict(check) for check in checks]}, text)
    return int(any(check.state == "error" for check in checks))


VERBS = [(doctor, "doctor", EXAMPLE)]
