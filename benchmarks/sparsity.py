"""How sparse each method gets within two points of the dense accuracy, at a small scale.

python benchmarks/sparsity.py --json benchmarks/results/one_shot_pruning.json [--data FOLDER --out FOLDER]

Stopped and started again, it goes on where it was: finished runs are kept in the folder.
"""

import argparse
import json
from pathlib import Path

import torch

from torchlift.reproduce import find_entries

PAPERS = Path(__file__).parent.parent / "papers"


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = find_entries(PAPERS)["one-shot-pruning"].run(
        args.out, data=args.data, seeds=args.seeds, scale=args.scale
    )
    print(result["finding"])
    if args.json:
        args.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
