"""Networks as people write them go both ways through the public calls: lifted training, then inversion."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlift as tl
from torchlift import lifted

F64 = torch.float64


class Convolutional(nn.Module):
    """F.relu, max-pooling, view and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(16, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = self.fc1(x.view(x.size(0), -1))
        return x + F.relu(self.fc2(x))


def autoencoder() -> nn.Module:
    """A 1-D convolutional autoencoder."""
    code = [
        nn.Conv1d(1, 4, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv1d(4, 6, 4, stride=2, padding=1),
    ]
    back = [nn.LeakyReLU(0.2), nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), nn.Tanh()]
    return nn.Sequential(*code, *back, nn.ConvTranspose1d(4, 1, 4, stride=2, padding=1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (lambda: lifted.ResidualNet(5, 8, 8, 2, 6, "tanh"), (5,)),
    "proximal": (lambda: lifted.ProximalNet(6, 8, 2), (6,)),
    "own CNN": (Convolutional, (1, 4, 4)),
    "1-D autoencoder": (autoencoder, (1, 16)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_it_trains_by_the_default_recipe_and_is_inverted(name: str) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = make().double()
    x = torch.randn(24, *shape, dtype=F64)
    with torch.no_grad():
        target = torch.tanh(model(x).roll(1, -1))
    first = float(F.mse_loss(model(x).detach(), target))
    data = (x, target)
    result = tl.fit(
        model, data, recipe=tl.recipes.Lifted(), loss="mse", epochs=8, batch_size=8, progress=False,
        optimizer="adam",
    )  # fmt: skip
    trained = result.model.eval()
    assert float(F.mse_loss(trained(x).detach(), target)) < first
    y = trained(x[:1]).detach()
    blank = float((trained(torch.zeros_like(x[:1])).detach() - y).norm())
    actual = tl.invert(trained, y, reg=tl.convex.L2(1e-6), shape=shape, max_iter=60, progress=False)
    assert actual.x.shape == x[:1].shape
    assert actual.residual < 0.3 * blank
