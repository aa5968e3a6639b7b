"""Denoising σ = 25 on Set12: a proximal network, lifted or by back-propagation, and TV with its best α.

    python benchmarks/inversion_denoising.py --data FOLDER --seconds 60

Both networks start from the same weights and train for the same CPU seconds on patches of Train400. TV's α is
the best of a grid on Set12 itself. PSNR and SSIM are means over the images, sd over the images.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor

import torchlift as tl
from torchlift.convex.functions import denoise
from torchlift.data.images import grey

RESULTS = Path(__file__).parent / "results"
SIGMA = 25 / 255
ALPHAS = (0.05, 0.06, 0.07, 0.085)
PATCH, BATCH = 32, 8


def patches(images: list[Tensor], generator: torch.Generator) -> Tensor:
    """A batch of random squares in [0, 1]."""
    found = []
    for k in torch.randint(0, len(images), (BATCH,), generator=generator).tolist():
        image = images[k]
        row, column = (int(torch.randint(0, s - PATCH + 1, (1,), generator=generator)) for s in image.shape)
        found.append(image[row : row + PATCH, column : column + PATCH])
    return torch.stack(found)[:, None].float() / 255


def train(
    method: str, images: list[Tensor], seconds: float, lr: float, seed: int
) -> tuple[tl.lifted.ProximalConvNet, int]:
    """Adam on ½‖N(x + noise) − x‖², or on the lifted energy after one descending sweep of the states."""
    torch.manual_seed(seed)
    net = tl.lifted.ProximalConvNet(filters=16, kernel=5, depth=4)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    lifted = tl.lifted.UnifiedISGM(lr=lr, rounds=1, inner=1)
    loss = tl.lifted.activations.get("linear")
    begun, steps = time.process_time(), 0
    while (spent := time.process_time() - begun) < seconds:
        optimizer.param_groups[0]["lr"] = lr * (1 - spent / seconds)
        x = patches(images, generator)
        noisy = x + SIGMA * torch.randn(x.shape, generator=generator)
        if method == "lifted":
            lifted.batch(net, noisy, x, 1.0, loss, optimizer)
        else:
            optimizer.zero_grad()
            (0.5 * (net(noisy) - x).square().sum() / len(x)).backward()
            optimizer.step()
        steps += 1
    return net, steps


def observed(images: list[Tensor], seed: int) -> list[tuple[Tensor, Tensor]]:
    """(noisy, clean) in [0, 1], each 1 × 1 × h × w."""
    generator = torch.Generator().manual_seed(seed)
    clean = [image[None, None].float() / 255 for image in images]
    return [(x + SIGMA * torch.randn(x.shape, generator=generator), x) for x in clean]


def scores(name: str, pairs: list[tuple[Tensor, Tensor]], **more: object) -> dict[str, object]:
    """Means and spreads over images."""
    psnr = torch.cat([tl.inversion.psnr(found.clamp(0, 1), x) for found, x in pairs])
    ssim = torch.cat([tl.inversion.ssim(found.clamp(0, 1), x) for found, x in pairs])
    return {
        "method": name, "psnr": float(psnr.mean()), "psnr_sd": float(psnr.std()),
        "ssim": float(ssim.mean()), "ssim_sd": float(ssim.std()), **more,
    }  # fmt: skip


def variation(alpha: float, y: Tensor) -> Tensor:
    """TV denoising, 100 dual steps at most."""
    operator, norm = tl.convex.TV(alpha).analysis(y.ndim)
    tol = 1e-4 * y.square().sum((1, 2, 3))
    return denoise(operator, norm, y, torch.zeros_like(operator.A(y)), 1.0, tol, cap=100)[0]


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-tv", action="store_true", help="measure TV anew and keep the networks' rows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, pairs = grey(given.data, "Train400"), observed(grey(given.data, "Set12"), 1)
    path = RESULTS / "inversion_denoising.json"
    rows = json.loads(path.read_text())["rows"][:-1] if given.only_tv else [scores("noisy", pairs)]
    for method, lr in () if given.only_tv else (("lifted", 1e-3), ("backprop", 1e-3)):
        net, steps = train(method, data, given.seconds, lr, given.seed)
        with torch.no_grad():
            rows.append(
                scores(f"proximal network, {method}", [(net(y), x) for y, x in pairs], steps=steps, lr=lr)
            )
        print(rows[-1], flush=True)
    tv = [scores("TV, best α", [(variation(a, y), x) for y, x in pairs], alpha=a) for a in ALPHAS]
    rows.append(max(tv, key=lambda row: float(str(row["psnr"]))))
    print(rows[-1], flush=True)
    result = {
        "what": "denoising, noise 25/255, Set12", "seed": given.seed, "torch": torch.__version__,
        "scale": f"{given.seconds:g} CPU s of training each, {BATCH} patches of {PATCH} × {PATCH} a batch",
        "machine": platform.machine(), "rows": rows,
    }  # fmt: skip
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
