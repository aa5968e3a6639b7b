"""Images from noise."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

NOISE = 64


def up(inputs: int, outputs: int) -> list[nn.Module]:
    """Twice the height and width."""
    conv = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]


def down(inputs: int, outputs: int) -> list[nn.Module]:
    """Half of them."""
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]


class Gan(nn.Module):
    """A generator of 32 × 32 images and the discriminator that trains it (Radford et al. 2016)."""

    def __init__(self, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Unflatten(1, (NOISE, 1, 1)), nn.ConvTranspose2d(NOISE, 4 * width, 4, bias=False),
            nn.BatchNorm2d(4 * width), nn.ReLU(), *up(4 * width, 2 * width), *up(2 * width, width),
            nn.ConvTranspose2d(width, channels, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2), *down(width, 2 * width),
            *down(2 * width, 4 * width), nn.Conv2d(4 * width, 1, 4), nn.Flatten(0),
        )  # fmt: skip
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """How real images look."""
        return self.discriminator(x)

    @torch.no_grad()
    def samples(self, count: int) -> Tensor:
        """Images of noise that is the same for all generators."""
        noise = torch.randn(count, NOISE, generator=torch.Generator().manual_seed(1))
        home = next(self.generator.parameters()).device
        return torch.cat([self.generator.eval()(batch.to(home)) for batch in noise.split(500)]).cpu()


def game(gan: Gan, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Both players' losses in one number: its gradient is each one's own.

    −log D(x) − log(1 − D(G(z))) for D at the images of a fixed G, −log D(G(z)) for G at a fixed D; both step
    at once, where the source lets them take turns.
    """
    judge = gan.discriminator
    fakes = gan.generator(torch.randn(len(batch[0]), NOISE, device=batch[0].device))
    fixed = {name: p.detach() for name, p in judge.named_parameters()}
    fooled = softplus(-functional_call(judge, fixed, (fakes,))).mean()
    return softplus(-judge(batch[0])).mean() + softplus(judge(fakes.detach())).mean() + fooled
