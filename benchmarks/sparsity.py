"""How sparse each method gets within two points of the dense accuracy, at a small scale.

python benchmarks/sparsity.py --out benchmarks/results/one_shot_pruning.json [--scale 0.1 --data FOLDER]
"""

import argparse
import json
from pathlib import Path

import torch

from torchlift.bench.reproduce import one_shot_pruning


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.02)
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = one_shot_pruning.run(data=args.data, seeds=args.seeds, scale=args.scale) | {"threads": 1}
    print(result["finding"])
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
