"""What each part of ``tl.compress`` is worth: one left out at a time, on three networks trained in seconds.

    OMP_NUM_THREADS=1 python benchmarks/compress_ablation.py --out benchmarks/results/compress_ablation.json

Handwritten digits (8 × 8) that come with the project; 128 calibration images without labels; test accuracy
and the relative squared error of the outputs, means over seeds.
"""

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from torchlift.channels.folding import fold_norms
from torchlift.compress.calibration import Calibration
from torchlift.compress.journal import StepJournal
from torchlift.compress.planning import Targets, compressed
from torchlift.compress.scoring import ValidationMetric
from torchlift.compress.sweep import Sweep


def mlp() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def convolutions() -> nn.Module:
    """Three convolutions with batch norms."""
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 8, 8))]
    for inputs, outputs, stride in ((1, 16, 1), (16, 32, 2), (32, 32, 1)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))


class Attention(nn.Module):
    """Rows of a digit as tokens of a small encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.positions = nn.Parameter(0.1 * torch.randn(8, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (samples, 64) → logits."""
        return self.head(self.block(self.embed(x.unflatten(1, (8, 8))) + self.positions).mean(1))


NETWORKS = {"MLP": mlp, "convolutions": convolutions, "attention": Attention}
FORMS = {"2 bits": {"bits": 2}, "half off": {"ratio": 0.5}, "half off, 3 bits": {"ratio": 0.5, "bits": 3}}


@dataclasses.dataclass(frozen=True)
class Ablation:
    """What is done differently."""

    refit: bool = True
    surgeon: bool = True
    allocate: bool = True
    sweeps: int = 1


ABLATIONS = {
    "all": Ablation(),
    "two sweeps, moving targets": Ablation(sweeps=2),
    "no refit": Ablation(refit=False),
    "by magnitude": Ablation(surgeon=False),
    "no allocation": Ablation(allocate=False),
    "by magnitude, no refit, no allocation": Ablation(refit=False, surgeon=False, allocate=False),
}


def ablated(
    model: nn.Module, data: torch.Tensor, options: dict[str, Any], ablation: Ablation, test: Any
) -> dict[str, float]:
    """Accuracy, output error and CPU seconds of one ablation."""
    calibration = Calibration.of(model, data, torch.device("cpu"))
    original = fold_norms(model, calibration.first(2))
    sweep = Sweep(
        original,
        calibration,
        StepJournal(None, ""),
        lambda _: None,
        lambda _: True,
        refit=ablation.refit,
        surgeon=ablation.surgeon,
    )
    start = time.process_time()
    state, _ = compressed(sweep, Targets(allocate=ablation.allocate, **options), ablation.sweeps)
    seconds = time.process_time() - start
    score = ValidationMetric(test, None, torch.device("cpu"))
    return {
        "accuracy, %": 100 * score(state.work),
        "output error": sweep.output_error(state.work),
        "CPU seconds": seconds,
    }


def trained(make: Any, seed: int, data: Any) -> nn.Module:
    """A network after a few epochs."""
    torch.manual_seed(seed)
    return tl.fit(
        make(),
        data.train,
        data.valid,
        epochs=10,
        schedule="cosine",
        batch_size=64,
        seed=seed,
        progress=False,
        optimizer=lambda groups: torch.optim.AdamW(groups, lr=5e-3),
    ).model.eval()


def main() -> None:
    """All ablations on all networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = tl.data.digits()
    record: dict[str, Any] = {
        "command": f"benchmarks/compress_ablation.py --seeds {arguments.seeds}",
        "calibration samples": 128,
        "torch": torch.__version__,
        "networks": {},
    }
    for name, make in NETWORKS.items():
        models = [trained(make, seed, data) for seed in range(arguments.seeds)]
        score = ValidationMetric(data.test, None, torch.device("cpu"))
        rows: dict[str, Any] = {"original, %": round(100 * statistics.mean(map(score, models)), 2)}
        for form, options in FORMS.items():
            for label, ablation in ABLATIONS.items():
                runs = [ablated(m, data.train[0][:128], options, ablation, data.test) for m in models]
                means = {key: float(f"{statistics.mean(r[key] for r in runs):.4g}") for key in runs[0]}
                rows[f"{form}; {label}"] = means | {
                    "each, %": [round(r["accuracy, %"], 2) for r in runs],
                }
                print(name, form, label, json.dumps(rows[f"{form}; {label}"]), flush=True)
        record["networks"][name] = rows
        if arguments.out:
            arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
