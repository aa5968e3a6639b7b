"""What an inversion costs: 64 digits through a 3-layer conv encoder, and crops of 28, 64 and 128 pixels.

    python benchmarks/inversion_cost.py --data FOLDER

Each runs until it has converged or its seconds are over, and says which: with tol = 10⁻², converged means
that no image moves by more than 10⁻³ of its length in a step. Seconds are CPU seconds, which depend little on
what else the machine does.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.data.images import gray, mnist

RESULTS = Path(__file__).parent / "results"


def encoder(seed: int) -> nn.Sequential:
    """1 → 8 → 16 → 16 channels, a quarter of the rows and columns: as many outputs as pixels."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
    ).eval()  # fmt: skip


def crops(data: str | None, size: int, count: int, seed: int) -> Tensor:
    """Random squares of the gray training images, in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    images = gray(data, "Train400")
    cut = []
    for k in range(count):
        image = images[k % len(images)]
        row, column = (
            int(torch.randint(0, side - size + 1, (1,), generator=generator)) for side in image.shape
        )
        cut.append(image[row : row + size, column : column + size])
    return torch.stack(cut)[:, None].float() / 255


def timed(
    model: nn.Module, x: Tensor, name: str, alpha: float, tol: float, seconds: float
) -> dict[str, object]:
    """One inversion of clean outputs."""
    with torch.no_grad():
        y = model(x)
    result = tl.invert(
        model, y, reg=tl.convex.TV(alpha), shape=tuple(x.shape[1:]), box=(0.0, 1.0), tol=tol,
        max_iter=100_000, seconds=seconds, progress=False,
    )  # fmt: skip
    psnr = tl.inversion.psnr(result.x, x)
    return {
        "what": name, "method": result.method, "images": len(x), "alpha": alpha, "tol": tol,
        "seconds": result.seconds, "iterations": result.iterations, "converged": result.converged,
        "seconds per step and image": result.seconds / result.iterations / len(x),
        "relative_residual": result.residual / float(y.norm()), "psnr": float(psnr.mean()),
    }  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the digits; a quarter for crops")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    time.perf_counter = time.process_time  # CPU seconds of all threads: what a shared machine can tell
    model = encoder(options.seed)
    digits = mnist(options.data)[1][0][:64].float() / 255
    name = "64 digits of 28 × 28, 3-layer conv encoder"
    rows = [timed(model, digits, name, 1e-5, 1e-2, options.seconds)]
    print(rows[-1], flush=True)
    for size in (28, 64, 128):
        x = crops(options.data, size, 4, options.seed)
        rows.append(timed(model, x, f"4 crops of {size} × {size}", 1e-5, 1e-2, options.seconds / 4))
        print(rows[-1], flush=True)
    result = {
        "what": "CPU seconds of inversions with TV in a box",
        "threads": options.threads, "seed": options.seed,
        "scale": f"at most {options.seconds:g} CPU s for the digits, a quarter of it for crops",
        "torch": torch.__version__, "machine": platform.machine(), "rows": rows,
    }  # fmt: skip
    (RESULTS / "inversion_cost.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
