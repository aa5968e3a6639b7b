"""Every recipe after every other, on a small convolutional net and a small transformer: what becomes of it.

    python benchmarks/pair_matrix.py [--models conv transformer] [--out benchmarks/results/pair_matrix.json]

A pair is delivered (a plain, finite model within the budget), or an error in one line; anything else is
written down as broken. What is in ``--out`` already, and is not broken, is not run again.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from pairs import MODELS, recipes, run_pair


def attempt(model: str, first: str, second: str) -> str:
    """What becomes of a pair; what is neither delivered nor an error in one line is broken."""
    try:
        return run_pair(model, first, second)
    except Exception as error:  # whatever a pair raises, the matrix goes on and shows it
        return f"BROKEN: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def main() -> None:
    """Fill the matrix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "pair_matrix.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("torchlift").setLevel(logging.ERROR)
    matrix: dict[str, dict[str, str]] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for model in options.models:
        names, pairs = list(recipes(model)), matrix.setdefault(model, {})
        for first in names:
            for second in names:
                key = f"{first} → {second}"
                if pairs.get(key, "BROKEN").startswith("BROKEN"):
                    pairs[key] = attempt(model, first, second)
                    options.out.write_text(json.dumps(matrix, indent=1, ensure_ascii=False) + "\n")
        done = sum(end == "delivered" for end in pairs.values())
        broken = {key: end for key, end in pairs.items() if end.startswith("BROKEN")}
        raised = len(pairs) - done - len(broken)
        print(f"{model}: {done} of {len(pairs)} delivered, {raised} an error in one line, broken: {broken}")


if __name__ == "__main__":
    main()
