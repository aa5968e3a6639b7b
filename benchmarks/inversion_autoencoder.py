"""A conv autoencoder's encoder run backward, against its own decoder and against autograd at equal time.

    python benchmarks/inversion_autoencoder.py --data FOLDER    # about ten minutes on one core

The encoder is inverted on test digits by ``tl.invert`` with TV and a box, by Adam and by L-BFGS through
autograd with the same regulariser, box and CPU seconds; the three take turns batch by batch. α of each is the
best of a grid on training digits. PSNR is the mean over images, sd over images.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.data.images import mnist

RESULTS = Path(__file__).parent / "results"
METHODS = ("auto", "adam", "lbfgs")
GRID = (3e-4, 1e-3, 3e-3, 1e-2)


def encoder(code: int) -> nn.Sequential:
    """Three convolutions: 28 → 14 → 7, ``code`` channels of 7 × 7."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, code, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


def decoder(code: int) -> nn.Sequential:
    """The mirror image; its output is cut to [0, 1] when measured."""
    return nn.Sequential(
        nn.Conv2d(code, 16, 3, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
    )  # fmt: skip


def train(code: int, images: Tensor, epochs: int, seed: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Adam on the mean squared error, cosine to zero."""
    torch.manual_seed(seed)
    down, up = encoder(code), decoder(code)
    optimizer = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=2e-3)
    steps = epochs * (len(images) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(images))[: len(images) // 64 * 64].split(64):
            optimizer.zero_grad()
            (up(down(images[batch])) - images[batch]).square().mean().backward()
            optimizer.step()
            schedule.step()
    return down.eval(), up.eval()


def once(model: nn.Module, y: Tensor, method: str, alpha: float, seconds: float) -> tl.Inversion:
    """One batch, stopped by the clock."""
    return tl.invert(
        model, y, reg=tl.convex.TV(alpha), shape=(1, 28, 28), box=(0.0, 1.0), method=method, tol=1e-9,
        max_iter=10**6, seconds=seconds, progress=False,
    )  # fmt: skip


def best_alpha(model: nn.Module, images: Tensor, y: Tensor, method: str, seconds: float) -> float:
    """The α of the grid with the best mean PSNR on these images."""
    scores = {a: tl.inversion.psnr(once(model, y, method, a, seconds).x, images).mean() for a in GRID}
    return max(scores, key=lambda a: float(scores[a]))


def measure(
    code: int, digits: Tensor, test: Tensor, seconds: float, epochs: int, seed: int
) -> list[dict[str, object]]:
    """Rows of one code size."""
    down, up = train(code, digits, epochs, seed)
    with torch.no_grad():
        tuning, codes = down(digits[:50]), down(test)
        decoded = tl.inversion.psnr(up(codes).clamp(0, 1), test)
    rows: list[dict[str, object]] = [row(code, "decoder", None, decoded, None)]
    alphas = {m: best_alpha(down, digits[:50], tuning, m, seconds) for m in METHODS}
    found: dict[str, list[Tensor]] = {m: [] for m in METHODS}
    misfit: dict[str, list[float]] = {m: [] for m in METHODS}
    for images, y in zip(test.split(50), codes.split(50), strict=True):
        for m in METHODS:
            result = once(down, y, m, alphas[m], seconds)
            found[m].append(tl.inversion.psnr(result.x, images))
            misfit[m].append(result.residual / float(y.norm()))
    for m in METHODS:
        rows.append(row(code, m, alphas[m], torch.cat(found[m]), sum(misfit[m]) / len(misfit[m])))
    return rows


def row(
    code: int, method: str, alpha: float | None, psnr: Tensor, residual: float | None
) -> dict[str, object]:
    """One line of the table."""
    name = {"auto": "torchlift (bcd+lbfgs)"}.get(method, method)
    return {
        "code": code * 49, "method": name, "alpha": alpha, "psnr": float(psnr.mean()),
        "sd": float(psnr.std()),
        "relative_residual": residual, "images": len(psnr),
    }  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--codes", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU seconds for every batch of 50")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--train", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # budgets in CPU seconds, so that a shared machine is fair to all
    (digits, _), (test, _) = mnist(given.data)
    digits, test = digits[: given.train] / 255, test[: given.images] / 255
    rows = [r for c in given.codes for r in measure(c, digits, test, given.seconds, given.epochs, given.seed)]
    result = {
        "what": "MNIST encoder inverted, against its decoder and autograd at equal seconds",
        "scale": f"{given.train} training digits, {given.epochs} epochs, {given.images} test digits, "
        f"{given.seconds} CPU s per batch of 50 and method, one thread",
        "seed": given.seed, "torch": torch.__version__, "machine": platform.machine(), "rows": rows,
    }  # fmt: skip
    (RESULTS / "inversion_autoencoder.json").write_text(json.dumps(result, indent=1) + "\n")
    for one in rows:
        print(one)


if __name__ == "__main__":
    main()
