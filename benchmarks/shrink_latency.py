"""What removing channels gives: file, latency and exactness of ResNet-20 with half of its channels cut.

Channels are closed by :func:`torchlift.deploy.channel_groups`, as a group mask leaves them, with norms as
after training. Latency is processor time, interleaved; medians of paired ratios. "widths": three tenths of a
ResNet-20 of 24, 48 and 96 channels cut by ``prune``, to widths as they come and to those that it finds to run
fastest.

    python benchmarks/shrink_latency.py --out benchmarks/results/shrink_latency.json
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from torchlift.deploy import channel_groups, prune, shrink
from torchlift.models import resnet
from torchlift.models.residual import ResNet
from torchlift.packed.file import packed


def masked(example: Tensor, fraction: float) -> nn.Module:
    """ResNet-20 with the first part of every group of channels closed."""
    torch.manual_seed(0)
    model = resnet(20).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()  # pyright: ignore[reportOptionalMemberAccess]
            module.running_var.uniform_(0.5, 2)  # pyright: ignore[reportOptionalMemberAccess]
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    with torch.no_grad():
        for members in channel_groups(model, example).values():
            for name, dim in members.items():
                weight = model.get_parameter(name)
                weight.index_fill_(dim, torch.arange(round(fraction * weight.shape[dim])), 0)
    return model


def interleaved(models: dict[str, nn.Module], batch: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each model's forward pass, taking turns."""
    x = torch.randn(batch, 3, 32, 32)
    times: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for number in range(rounds + 5):
            for name, model in models.items():
                start = time.process_time()
                model(x)
                if number >= 5:
                    times[name].append(1e3 * (time.process_time() - start))
    return times


def channels(model: nn.Module) -> int:
    """Output channels of all convolutions."""
    return sum(module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d))


def widths(rounds: int) -> dict[str, object]:
    """Time of a call by that of the whole network, with widths as they come and with fast ones."""
    torch.manual_seed(0)
    dense, example = ResNet(20, 24).eval(), torch.randn(32, 3, 32, 32)
    models: dict[str, nn.Module] = {"dense": dense}
    models["as they come"] = prune(dense, example, 0.3, round_to=1)
    models["auto"] = prune(dense, example, 0.3)
    times = interleaved(models, len(example), rounds)
    rows: dict[str, object] = {}
    for name in ("as they come", "auto"):
        pairs = zip(times[name], times["dense"], strict=True)
        rows[name] = {
            "time": round(statistics.median(a / b for a, b in pairs), 3),
            "channels": sorted({m.out_channels for m in models[name].modules() if isinstance(m, nn.Conv2d)}),
        }
    return rows


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    example = torch.randn(2, 3, 32, 32)
    dense, wide = resnet(20).eval(), masked(example, args.fraction)
    small = shrink(wide, example).eval()
    probe = torch.randn(16, 3, 32, 32)
    with torch.no_grad():
        error = float((small(probe) - wide(probe)).abs().max())
    result: dict[str, object] = {
        "what": "ResNet-20 with coupled channels cut, against the dense network",
        "channels": [channels(dense), channels(small)], "fraction_cut": 1 - channels(small) / channels(dense),
        "parameters": [sum(p.numel() for p in m.parameters()) for m in (dense, small)],
        "file_bytes": [len(packed(dense)[0]), len(packed(small)[0])],
        "file_ratio": round(len(packed(small)[0]) / len(packed(dense)[0]), 4),
        "largest_difference_to_masked": error, "threads": args.threads, "torch": torch.__version__,
    }  # fmt: skip
    for batch in (1, 32):
        times = interleaved(
            {"dense": dense, "small": small}, batch, args.rounds if batch == 1 else args.rounds // 2
        )
        ratios = sorted(a / b for a, b in zip(times["dense"], times["small"], strict=True))
        quarter = len(ratios) // 4
        result[f"batch {batch}"] = {
            "dense_ms": round(statistics.median(times["dense"]), 3),
            "small_ms": round(statistics.median(times["small"]), 3),
            "speedup": round(statistics.median(ratios), 3),
            "quartiles": [round(ratios[quarter], 3), round(ratios[-1 - quarter], 3)],
        }
    result["widths"] = widths(args.rounds // 2)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
