"""Half of every group of channels cut from 61 networks, beside Torch-Pruning.

    python benchmarks/prune_zoo.py --out benchmarks/results/prune_zoo.json

For each: the part of the parameters that is left; the bound, below which only rounded widths go: half of
every dimension of every weight but for the model's inputs and outputs, rows that are looked up by number, and
the places of kernels; the largest difference from the model with the same channels set to zero (relative to
its largest output); seconds; and what ``prune`` itself says of what stays, one line for each reason.
Torch-Pruning is given the model whose channels are zero already, and what reads them, so that what it cuts
by magnitude should be these, and is told which layers give the outputs: what it leaves, how far its outputs
move, or why it failed. Rows in the file are not run again.
"""

import argparse
import json
import logging
import signal
import statistics
import time
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prune_models import MODELS
from shrink_table import theirs
from torchlift.channels.copies import sharing
from torchlift.channels.couplings import Coupling, couplings
from torchlift.channels.cuts import masked_copy
from torchlift.channels.equality import both, output_difference
from torchlift.channels.example_inputs import PinnedOutput
from torchlift.channels.follow import Trace
from torchlift.channels.follow.movement import LOOKED_UP
from torchlift.channels.follow.products import UNFOLLOWED
from torchlift.channels.follow.trace import OUTPUT
from torchlift.channels.prune import INHERENT, traced_groups
from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
from torchlift.channels.surgery import usable
from torchlift.deploy import prune

LIMIT = 30
"""Processor seconds for Torch-Pruning."""
STAYS = {*INHERENT, UNFOLLOWED, "the places of a kernel stay"}


def size(model: nn.Module) -> int:
    """Parameters."""
    return sum(p.numel() for p in model.parameters())


def bound(model: nn.Module, trace: Trace) -> float:
    """The part of the parameters that is left if half of every dimension that can go does."""
    frozen, parent = trace.labels.frozen(), trace.labels.parent
    left = {name: float(p.numel()) for name, p in model.named_parameters()}
    for axis in trace.labels.axes:
        if axis.name in left:
            roots = parent[axis.start : axis.start + axis.size].tolist()
            stays = sum(frozen.get(root) in STAYS for root in roots) / axis.size
            left[axis.name] *= 0.5 + 0.5 * stays
    return sum(left.values()) / size(model)


def zeroed(model: nn.Module, x: Any) -> tuple[list[nn.Module], Any, Trace]:
    """The model with the channels that go set to zero: of all groups, and of those that its code supports."""
    trace, inputs = traced_groups(model, x, None, 0.5)
    models: list[nn.Module] = []
    for groups in (couplings(trace), usable(model, trace, inputs, None)):
        free = [c for c in groups if not c.blocked and c.channels > 1]
        gone = chosen_channels(free, scores_of(model, free, PruningChoice()), PruningChoice())
        masked = masked_copy(model, free, gone, trace.scaled)
        models.append(unread(masked, free, gone, {weight.v for weight in trace.scaled}))
    return models, inputs, trace


@torch.no_grad()
def unread(
    model: nn.Module, groups: list[Coupling], gone: list[Tensor], scaled: Collection[str]
) -> nn.Module:
    """The model whose channels are zero with zeros in what reads them, too: the least by any norm. Weights
    scaled to a norm of all their entries are left alone."""
    weights = {name: weight for name, weight in model.named_parameters() if name not in scaled}
    for group, dead in zip(groups, gone, strict=True):
        for member in group.of("reads"):
            if member.name in weights:
                weights[member.name].index_fill_(member.dim, member.index[dead[member.channel]], 0)
    return model


def gap(model: nn.Module, small: nn.Module, inputs: Any) -> float:
    """How far two models are apart."""
    outputs = both(PinnedOutput(model, None), PinnedOutput(sharing(small), None), [inputs])
    return float("inf") if outputs is None else output_difference(*outputs[:2])


class Said(logging.Handler):
    """What ``prune`` says of what stays."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        if " stay: " in (line := record.getMessage()):
            self.lines.append(line)


def row(model: nn.Module, x: Any) -> dict[str, Any]:
    """What pruning gives for a model."""
    said, log = Said(), logging.getLogger("torchlift.channels.prune")
    log.addHandler(said)
    start = time.process_time()
    small = prune(model, x, 0.5, round_to=1)
    seconds = time.process_time() - start
    log.removeHandler(said)
    references, inputs, trace = zeroed(model, x)
    gaps = [gap(reference, small, inputs) for reference in references]
    return {
        "left": size(small) / size(model),
        "bound": bound(model, trace),
        "difference": min(gaps),
        "seconds": seconds,
        "stays": said.lines,
        "torch_pruning": rival(references[gaps.index(min(gaps))], x, inputs, output_layers(model, trace)),
    }


def output_layers(model: nn.Module, trace: Trace) -> set[str]:
    """The layers whose outputs are the model's, which Torch-Pruning has to be told; an embedding that is tied
    to one is not."""
    fixed = [c for c in couplings(trace) if c.blocked in (OUTPUT, LOOKED_UP)]
    members = [m for c in fixed for m in c.of("writes")]
    weights = {id(p) for name, p in model.named_parameters() if name in {m.name for m in members}}
    return {
        name
        for name, layer in model.named_modules()
        if not isinstance(layer, nn.Embedding)
        and any(id(p) in weights for p in layer.parameters(recurse=False))
    }


def rival(reference: nn.Module, x: Any, inputs: Any, outputs: set[str]) -> dict[str, Any]:
    """What Torch-Pruning does with the model whose channels are zero."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        small = theirs(reference, x, outputs=outputs).eval()
        return {"left": size(small) / size(reference), "difference": gap(reference, small, inputs)}
    except TimeoutError:
        return {"failed": f"no end within {LIMIT} CPU s"}
    except Exception as error:  # whatever it raises is the finding
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def ring(_number: int, _frame: Any) -> None:
    """The rival's time is up."""
    raise TimeoutError


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Counts over all models."""
    done = [r for r in rows.values() if "failed" not in r]
    them = [r["torch_pruning"] for r in done if "failed" not in r["torch_pruning"]]
    above = {name: r for name, r in rows.items() if "failed" not in r and r["left"] > r["bound"] + 0.05}
    return {
        "models": len(rows),
        "cut": sum(r["left"] < 1 for r in done),
        "exact": sum(r["difference"] <= 1e-6 for r in done),
        "median_left": statistics.median(r["left"] for r in done),
        "within_0.05_of_the_bound": len(done) - len(above),
        "above_with_the_reason": {name: r["stays"] for name, r in above.items()},
        "torch_pruning": {
            "cut": sum(r["left"] < 1 for r in them),
            "cut_and_exact": sum(r["left"] < 1 and r["difference"] <= 1e-6 for r in them),
        },
    }


def main() -> None:
    """All models that are not in the file, one after the other; it is written after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/prune_zoo.json"))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, ring)
    logging.lastResort = None
    rows: dict[str, Any] = json.loads(options.out.read_text())["rows"] if options.out.exists() else {}
    for name in options.models:
        if name in rows:
            continue
        torch.manual_seed(0)
        model, x = MODELS[name]()
        try:
            rows[name] = row(model.eval(), x)
        except Exception as error:  # whatever a model raises is the finding
            rows[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, rows[name], flush=True)
        options.out.write_text(json.dumps({"summary": summary(rows), "rows": rows}, indent=1) + "\n")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
