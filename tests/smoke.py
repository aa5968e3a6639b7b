"""The installed package, from a table to a prediction: ``python smoke.py`` where only the wheel is installed.

Every step is a command, as a new user would type it, in a folder of its own.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TABLE = "width,length,kind\n" + "".join(
    f"{1 + (k % 7) / 10:.1f},{2 + (k % 5) / 10 + (k % 2):.1f},{('round', 'long')[k % 2]}\n" for k in range(80)
)
STEPS = (
    "fit --model mlp --data table.csv --epochs 10 --out runs/table",
    "measure runs/table",
    "compress runs/table --data table.csv --bits 4 --to small.tl",
    "predict small.tl new.csv --out predictions.csv",
)


def main() -> int:
    """Run the steps; 0 where the last one named a class for every line."""
    program = Path(sys.executable).with_name("torchlift")
    command = [str(program)] if program.exists() else [shutil.which("torchlift") or "torchlift"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "table.csv").write_text(TABLE)
        (folder / "new.csv").write_text("width,length\n1.2,2.1\n1.3,3.2\n")
        for step in STEPS:
            print("torchlift", step, flush=True)
            subprocess.run([*command, *step.split()], cwd=folder, check=True)
        lines = (folder / "predictions.csv").read_text().splitlines()
    print(*lines, sep="\n")
    return int(len(lines) != 3 or not all("round" in line or "long" in line for line in lines[1:]))


if __name__ == "__main__":
    sys.exit(main())
