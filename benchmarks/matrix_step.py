"""What a step of Muon and SOAP costs beside fused AdamW and other implementations, one thread.

    python benchmarks/matrix_step.py

CPU time of the optimizer's step alone, interleaved rounds, ratios within a round, medians. "by heads" steps
the fused queries, keys and values of a transformer as twelve matrices each. torch's Muon takes matrices
alone and leaves the rest to fused AdamW; pytorch_optimizer's are measured where it is installed. Writes
benchmarks/results/matrix_step.json.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from torchlift.models import GPT, MLP, LeNet5, resnet
from torchlift.optim import Muon, Soap

Step = Callable[[], Any]
HEADS = 4
MODELS: dict[str, Callable[[], nn.Module]] = {
    "MLP 784-48-32-10": lambda: MLP(784, 48, 32, 10),
    "LeNet-5": lambda: LeNet5((1, 28, 28)),
    "ResNet-20": lambda: resnet(20),
    "GPT 64×2": lambda: GPT(50, context=64, width=64, depth=2, heads=HEADS),
}


def weights(model: nn.Module) -> list[Tensor]:
    """The parameters, with random gradients."""
    for parameter in model.parameters():
        parameter.grad = 0.01 * torch.randn_like(parameter)
    return list(model.parameters())


def matrices(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Those of two axes, as Muon of torch takes them, and the others."""
    params = list(params)
    return [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]


def by_heads(model: nn.Module) -> list[dict[str, Any]]:
    """A group for the fused projections, one for the rest."""
    named = dict(model.named_parameters())
    fused = [p for name, p in named.items() if name.endswith("qkv.weight")]
    rest = [p for name, p in named.items() if not name.endswith("qkv.weight")]
    return [{"params": fused, "blocks": 3 * HEADS}, {"params": rest}]


def side_by_side(*optimizers: torch.optim.Optimizer) -> Step:
    """One step of each."""

    def step() -> None:
        for optimizer in optimizers:
            optimizer.step()

    return step


def ways(make: Callable[[], nn.Module]) -> dict[str, Step]:
    """A step of every optimizer, each with a model of its own."""

    def own() -> list[Tensor]:
        return weights(make())

    steps: dict[str, Step] = {
        "AdamW, fused": AdamW(own(), fused=True).step,
        "Muon": Muon(own()).step,
        "SOAP": Soap(own()).step,
    }
    model = make()
    if any(name.endswith("qkv.weight") for name, _ in model.named_parameters()):
        _ = weights(model)
        steps["Muon, by heads"] = Muon(by_heads(model)).step
    flat, rest = matrices(own())
    if hasattr(torch.optim, "Muon") and len(flat) == sum(p.ndim > 1 for p in (*flat, *rest)):
        theirs = torch.optim.Muon(flat, adjust_lr_fn="match_rms_adamw")
        steps["Muon of torch"] = side_by_side(theirs, AdamW(rest, fused=True))
    if find_spec("pytorch_optimizer") is not None:
        other = import_module("pytorch_optimizer")
        steps["SOAP of pytorch_optimizer"] = other.SOAP(own(), precondition_frequency=10).step
        flat, rest = matrices(own())
        groups = [{"params": flat, "use_muon": True}, {"params": rest, "use_muon": False}]
        if len(flat) == sum(p.ndim > 1 for p in (*flat, *rest)):
            steps["Muon of pytorch_optimizer"] = other.Muon(groups).step
    return steps


def seconds(step: Step, count: int) -> float:
    """CPU time of one step, the mean over ``count``."""
    started = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - started) / count


def measure(make: Callable[[], nn.Module], rounds: int, count: int) -> dict[str, Any]:
    """Median microseconds of a step, and the median ratio to fused AdamW's within a round."""
    steps = ways(make)
    for step in steps.values():
        _ = seconds(step, 2)
    table = [{name: seconds(step, count) for name, step in steps.items()} for _ in range(rounds)]
    return {
        "rounds": rounds,
        "steps_per_round": count,
        "microseconds": {n: round(1e6 * statistics.median(row[n] for row in table), 1) for n in steps},
        "ratio_to_muon": {
            n: round(statistics.median(row[n] / row["Muon"] for row in table), 2) for n in steps
        },
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result = {
        "what": "CPU time of one optimizer step, one thread",
        **{name: measure(make, rounds, 10) for name, make in MODELS.items()},
        "threads": 1,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    print(json.dumps(result, indent=1))
    path = Path(__file__).parent / "results" / "matrix_step.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
