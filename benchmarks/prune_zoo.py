"""Half of every group of channels cut from 61 networks.

    python benchmarks/prune_zoo.py --out benchmarks/results/prune_zoo.json

For each: the part of the parameters that is left, the largest difference from the model with the same
channels set to zero (relative to its largest output), seconds, and the reasons why channels stay. Half of a
width leaves a quarter of a matrix between two of them, and half of one whose other side stays.
"""

import argparse
import json
import logging
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prune_models import MODELS
from torchlift.channels.copies import sharing
from torchlift.channels.couplings import Coupling, couplings
from torchlift.channels.cuts import masked
from torchlift.channels.equality import apart, both
from torchlift.channels.example_inputs import Pinned
from torchlift.channels.follow import Trace, traced
from torchlift.channels.scores import Choice, chosen, scores_of
from torchlift.channels.surgery import usable
from torchlift.deploy import prune


def size(model: nn.Module) -> int:
    """Parameters."""
    return sum(p.numel() for p in model.parameters())


def gap(model: nn.Module, small: nn.Module, trace: Trace, given: Any, groups: list[Coupling]) -> float:
    """How far the cut model is from the one with channels of these groups set to zero."""
    free = [c for c in groups if not c.blocked and c.channels > 1]
    gone = chosen(free, scores_of(model, free, Choice()), Choice())
    zeroed = masked(model, free, gone, trace.scaled)
    outputs = both(Pinned(zeroed, None), Pinned(sharing(small), None), [given])
    return float("inf") if outputs is None else apart(*outputs[:2])


def row(model: nn.Module, x: Any) -> dict[str, Any]:
    """What pruning gives for a model."""
    start = time.process_time()
    small = prune(model, x, 0.5, round_to=1)
    seconds = time.process_time() - start
    trace, given = traced(model, x, values=False, output=None)
    groups = usable(model, trace, given, None)
    gaps = [gap(model, small, trace, given, some) for some in (couplings(trace), groups)]
    reasons: Counter[str] = Counter()
    for coupling in groups:
        if coupling.blocked:
            reasons[coupling.blocked] += coupling.channels
    return {
        "left": size(small) / size(model),
        "difference": min(gaps),
        "seconds": seconds,
        "stays": dict(reasons.most_common()),
    }


def main() -> None:
    """All models, one after the other; the file is written after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/prune_zoo.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: dict[str, Any] = {}
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, x = make()
        try:
            rows[name] = row(model.eval(), x)
        except Exception as error:  # whatever a model raises is the finding
            rows[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, rows[name], flush=True)
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
