"""Whether torch's sparse kernels beat dense ones on this CPU for pruned linear layers.

python benchmarks/sparse_execution.py --out benchmarks/results/sparse_execution.json
"""

import argparse
import json
from pathlib import Path

import torch
from torch import nn

from torchlift.channels.sparse_linear import SparseLinear
from torchlift.deploy.sparse_layers import median_times

SHAPES = ((256, 256), (1024, 1024), (768, 3072))
"""Inputs and outputs; the last is the wide layer of a transformer."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[dict[str, float | str]] = []
    for inputs, outputs in SHAPES:
        for sparsity in (0.8, 0.9, 0.95, 0.98, 0.99):
            layer = nn.Linear(inputs, outputs)
            with torch.no_grad():
                layer.weight[torch.rand(outputs, inputs) < sparsity] = 0
            for batch in (1, 32):
                dense, sparse = median_times(
                    [layer, SparseLinear(layer)], torch.randn(batch, inputs), args.rounds
                )
                rows.append(
                    {
                        "size": f"{inputs}×{outputs}",
                        "sparsity": sparsity,
                        "batch": batch,
                        "dense_ms": round(dense, 4),
                        "sparse_ms": round(sparse, 4),
                        "speedup": round(dense / sparse, 3),
                    }
                )
    result = {
        "what": "a linear layer, dense over compressed rows; medians, taking turns",
        "threads": 1,
        "torch": torch.__version__,
        "rows": rows,
    }
    print("\n".join(str(row) for row in rows))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
