"""Unrolled networks for images trained for so many CPU seconds: lifted, or by back-propagation."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from papers.unified_lifting.observing import Task
from torchlift.convex.activations import Activation
from torchlift.convex.activations import get as activation
from torchlift.methods.lifted import UnrolledNet
from torchlift.methods.lifted.penalties import Bregman
from torchlift.methods.lifted.unified import energy

PATCH, BATCH, REFRESH = 32, 8, 50
MU = 1.0


def patches(images: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    """A batch of random squares in [0, 1]."""
    found = []
    for k in torch.randint(0, len(images), (BATCH,), generator=generator).tolist():
        image = images[k]
        row, column = (int(torch.randint(0, s - PATCH + 1, (1,), generator=generator)) for s in image.shape)
        found.append(image[row : row + PATCH, column : column + PATCH])
    return torch.stack(found)[:, None].float() / 255


class Sweep:
    """All states at once: z_l ← prox of μB_l at z_l − (slope of all later terms)/bound, ``rounds`` times.

    One pass forward and one of adjoints for a round; no derivative of an activation. ``bound`` is the norm
    of the map from the states to what comes later, by power iteration, measured anew every 50 batches: it
    depends on the weights alone, which change little in between.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds, self.bound, self.batches = rounds, 0.0, 0

    def states(self, net: UnrolledNet, y: Tensor, x: Tensor, loss: Activation) -> list[Tensor]:
        """From the forward pass."""
        with torch.no_grad():
            z = net.states(y)
        weights = [MU] * len(z) + [1.0]
        acts = [*net.activations, loss]
        if self.batches % REFRESH == 0:
            self.bound = 1.1 * size(net, y, z, weights)
        self.batches += 1
        for _ in range(self.rounds):
            pre, pull, *_ = torch.func.vjp(lambda *states: tuple(net.preactivations(y, states)), *z)
            targets = [*z, x]
            ends = zip(weights, acts, targets, pre, strict=True)
            slopes = pull(tuple(w * act.grad_v(target, v) for w, act, target, v in ends))
            z = [
                Bregman(act).prox_u(state - slope / self.bound, v, MU / self.bound)
                for act, state, slope, v in zip(net.activations, z, slopes, pre[:-1], strict=True)
            ]
        return [state.detach() for state in z]


def size(
    net: UnrolledNet, y: Tensor, z: Sequence[Tensor], weights: Sequence[float], steps: int = 15
) -> float:
    """‖Σ w A_lᵀA_l‖ of the linear map from all states to all pre-activations."""
    like = tuple(z)

    def ahead(*states: Tensor) -> tuple[Tensor, ...]:
        return tuple(net.preactivations(y, states))

    with torch.no_grad():
        at, pull, *_ = torch.func.vjp(ahead, *like)
        generator = torch.Generator().manual_seed(0)
        move = [torch.randn(state.shape, generator=generator) for state in like]
        norm = 1.0
        for _ in range(steps):
            norm = max(float(torch.stack([m.square().sum() for m in move]).sum().sqrt()), 1e-12)
            move = [m / norm for m in move]
            moved = ahead(*(a + m for a, m in zip(like, move, strict=True)))
            image = tuple(w * (b - a) for w, a, b in zip(weights, at, moved, strict=True))
            move = list(pull(image))
    return float(torch.stack([m.square().sum() for m in move]).sum().sqrt())


def train(
    task: Task, method: str, images: Sequence[Tensor], seconds: float, lr: float, seed: int, rounds: int = 2
) -> tuple[UnrolledNet, int]:
    """Adam on ½‖N(y) − x‖², or on the lifted energy at descended states; the rate falls to 0."""
    torch.manual_seed(seed)
    net = task.network()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    sweep, loss = Sweep(rounds), activation("linear")
    begun, steps = time.process_time(), 0
    while (spent := time.process_time() - begun) < seconds:
        optimizer.param_groups[0]["lr"] = lr * (1 - spent / seconds)
        x = patches(images, generator)
        y, net.operator = task.observe(x, generator)
        optimizer.zero_grad()
        if method == "lifted":
            cost = energy(net, y, x, sweep.states(net, y, x, loss), MU, loss).sum()
        else:
            cost = 0.5 * (net(y) - x).square().sum()
        (cost / len(x)).backward()
        optimizer.step()
        steps += 1
    return net, steps
