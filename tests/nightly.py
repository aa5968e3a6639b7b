"""The tests of ``nightly.txt``, which make test leaves to make nightly."""

from pathlib import Path

LINES = Path(__file__).with_name("nightly.txt").read_text().splitlines()
NIGHTLY = {line for line in LINES if line and not line.startswith("#")}
