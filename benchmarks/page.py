"""Write docs/results.md: what every reproduction found, from benchmarks/results.

python benchmarks/page.py
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
INTRO = """# What reproduced, and what did not

Every entry is a command (`--seeds`, `--scale`); rows and machine are in `benchmarks/results`. All ran on
two cores, so most are smaller than the papers' experiments. `python benchmarks/page.py` writes this page.
"""


def page() -> str:
    """All findings, ordered by the work they come from."""
    records = [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    known = [
        (name, result)
        for name, result in records
        if isinstance(result, dict) and {"finding", "source"} <= result.keys()
    ]
    known.sort(key=lambda one: (one[1]["source"].casefold(), one[0]))
    return INTRO + "".join(section(name, result) for name, result in known)


def section(name: str, result: dict[str, Any]) -> str:
    """One finding with its source, its scale and its seeds."""
    finding = result["finding"].rstrip(".")
    seeds = len(result["seeds"])
    partial = f" Partial: {result['partial']}." if "partial" in result else ""
    return f"""
## {result["title"]}

{finding[0].upper()}{finding[1:]}.{partial}

- source: {result["source"]}
- scale: {result["scale"]}; {seeds} seed{"s" if seeds > 1 else ""}
- `torchlift reproduce {name.replace("_", "-")}`
"""


if __name__ == "__main__":
    PAGE.write_text(page())
