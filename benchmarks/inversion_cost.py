"""What an inversion costs: 64 images through a 3-layer conv encoder at 28, 64, 128; a 512 × 4096 ReLU layer.

    python benchmarks/inversion_cost.py --data FOLDER

Seconds are CPU seconds, which do not depend on what else the machine does.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.data.images import grey, mnist

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
    """Random squares of the grey training images, in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    images = grey(data, "Train400")
    found = []
    for k in range(count):
        image = images[k % len(images)]
        row, column = (
            int(torch.randint(0, side - size + 1, (1,), generator=generator)) for side in image.shape
        )
        found.append(image[row : row + size, column : column + size])
    return torch.stack(found)[:, None].float() / 255


def timed(
    model: nn.Module, x: Tensor, name: str, alpha: float, method: str, **options: object
) -> dict[str, object]:
    """One inversion of clean outputs."""
    shape = tuple(x.shape[1:])
    with torch.no_grad():
        y = model(x.flatten(1) if isinstance(model[0], nn.Linear) else x)
    found = tl.invert(
        model,
        y,
        reg=tl.convex.TV(alpha),
        shape=shape,
        box=(0.0, 1.0),
        method=method,
        progress=False,
        **options,
    )
    psnr = tl.inversion.psnr(found.x, x)
    return {
        "what": name, "method": found.method, "images": len(x), "alpha": alpha, "seconds": found.seconds,
        "iterations": found.iterations, "converged": found.converged,
        "relative_gap": None if found.gap is None else found.gap / found.objective,
        "relative_residual": found.residual / float(y.norm()), "psnr": float(psnr.mean()),
    }  # fmt: skip


def single(seed: int) -> nn.Sequential:
    """A random 512 × 4096 ReLU layer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4096, 512), nn.ReLU())
    nn.init.normal_(model[0].weight, std=4096**-0.5)
    nn.init.normal_(model[0].bias, std=0.05)
    return model.eval()


def phantom() -> Tensor:
    """Rectangles and a disc on 64 × 64."""
    x = torch.zeros(1, 64, 64)
    x[0, 10:30, 8:24], x[0, 36:56, 30:58] = 0.8, 0.5
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    x[0][(rows - 20) ** 2 + (columns - 44) ** 2 < 100] = 1.0
    return x


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-iter", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    time.perf_counter = time.process_time  # CPU seconds of all threads: what a shared machine can tell
    model = encoder(given.seed)
    digits = mnist(given.data)[1][0][:64].float() / 255
    rows = [
        timed(
            model, digits, "64 digits of 28 × 28, 3-layer conv encoder", 1e-5, "auto", max_iter=given.max_iter
        )
    ]
    print(rows[-1], flush=True)
    for size in (28, 64, 128):
        x = crops(given.data, size, 4, given.seed)
        rows.append(timed(model, x, f"4 crops of {size} × {size}", 1e-5, "auto", max_iter=given.max_iter))
        print(rows[-1], flush=True)
    layer = single(given.seed)
    for method in ("auto", "lbfgs"):
        limits = {"tol": 1e-4, "max_iter": 5000} if method == "auto" else {"seconds": rows[-1]["seconds"]}
        rows.append(
            timed(
                layer, phantom(), "one 64 × 64 phantom, random 512 × 4096 ReLU layer", 1e-2, method, **limits
            )
        )
        print(rows[-1], flush=True)
    result = {
        "what": "CPU seconds of inversions with TV in a box", "threads": given.threads, "seed": given.seed,
        "scale": f"at most {given.max_iter} quasi-Newton steps for the encoder", "torch": torch.__version__,
        "machine": platform.machine(), "rows": rows,
    }  # fmt: skip
    (RESULTS / "inversion_cost.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
