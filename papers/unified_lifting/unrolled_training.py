"""Unrolled networks for images trained for so many CPU seconds: lifted, or by back-propagation."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from papers.unified_lifting.observing import ImagingTask
from torchlift.methods.lifted import UnrolledNet
from torchlift.methods.lifted.nudge import NudgedNetwork

PATCH, BATCH = 32, 8
BETA = 0.01
LOOKS = 5


def patches(images: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    """A batch of random squares in [0, 1]."""
    crops = []
    for k in torch.randint(0, len(images), (BATCH,), generator=generator).tolist():
        image = images[k]
        row, column = (int(torch.randint(0, s - PATCH + 1, (1,), generator=generator)) for s in image.shape)
        crops.append(image[row : row + PATCH, column : column + PATCH])
    return torch.stack(crops)[:, None].float() / 255


def train(
    task: ImagingTask,
    method: str,
    images: Sequence[Tensor],
    seconds: float,
    lr: float,
    seed: int,
    look: Callable[[UnrolledNet], float] | None = None,
) -> tuple[UnrolledNet, int, list[float]]:
    """Adam on ½‖N(y) − x‖², by its gradient or by the one-pass contrastive one; the rate falls to 0.

    The network, the steps, and what ``look`` saw after each of ``LOOKS`` equal stretches, off the clock.
    """
    torch.manual_seed(seed)
    net = task.network()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    lifted, nudges = NudgedNetwork(net), [BETA * BATCH] * len(net.activations)
    start, steps, seen = time.process_time(), 0, list[float]()
    while (spent := time.process_time() - start) < seconds:
        if look is not None and spent >= seconds * (len(seen) + 1) / LOOKS:
            before = time.process_time()
            seen.append(look(net))
            start += time.process_time() - before
        optimizer.param_groups[0]["lr"] = lr * (1 - spent / seconds)
        x = patches(images, generator)
        y, net.operator = task.observe(x, generator)
        optimizer.zero_grad()
        output = lifted(y, nudges) if method == "lifted" else net(y)
        (0.5 * (output - x).square().sum() / len(x)).backward()
        optimizer.step()
        steps += 1
    return net, steps, seen if look is None else seen + [look(net)] * (LOOKS - len(seen))
