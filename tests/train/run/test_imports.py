"""A plain run loads no more than it needs."""

import subprocess
import sys

SCRIPT = """
import sys
import torch
import torchlift as tl

x = torch.randn(8, 3)
tl.fit(torch.nn.Linear(3, 2), (x, (x[:, 0] > 0).long()), epochs=1, progress=False)
print("\\n".join(sys.modules))
"""
HEAVY = ("deploy", "packed", "channels", "convex", "inversion", "experiments", "report", "methods.lifted")


def test_plain_training_imports_no_file_format_no_cuts_and_no_convex_solvers() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "torchlift.train.run" in loaded
    heavy = [name for name in loaded if name.startswith(tuple(f"torchlift.{room}" for room in HEAVY))]
    assert not heavy, heavy
