"""One step on the first batch: what a resumed run must repeat, whatever it is made of.

Digests say what a model, data and a loss *are*; the probe says what they *do*: a changed hook, a global that
a loss reads or another ``__getitem__`` shows in the first batch, its loss, its gradients or the first update.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Generator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlift.core import Problem, Task
from torchlift.train import rng
from torchlift.train.batches import Source, StepBatches
from torchlift.train.run.digest import digest
from torchlift.tree import leaves, move

CLOSE = {"loss": 1e-3, "gradient": 1e-3, "along": 1e-3, "update": 1e-2}
"""How far the numbers of two probes may be apart, relative to their size: another number of threads, or
another machine, rounds in another way, and optimizers that divide by the gradient's size amplify it."""

ProbeRecord = dict[str, Any]


def probe_step(
    task: Task,
    train: Source,
    valid: Source | None,
    seed: int,
    device: torch.device,
    optimizer: Callable[[Problem], Optimizer],
) -> ProbeRecord:
    """The first batches and what a step on them does; data that never come twice alike are named as such."""
    batches, again = (first_batches(train, valid, seed) for _ in range(2))
    if digest(*map(batch_tensors, batches)) != digest(*map(batch_tensors, again)):
        return {"unrepeatable": "the data: two first batches differ"}
    return {"batch": digest(*map(batch_tensors, batches))} | step_numbers(
        task, batches[0], seed, device, optimizer
    )


def batch_tensors(batch: Any) -> list[Tensor]:
    """All tensors of a batch."""
    return list(leaves(batch))


def first_batches(train: Source, valid: Source | None, seed: int) -> list[Any]:
    """The first batch of either data; no random stream moves."""
    batches: list[Any] = []
    with rng.scope(seed), contextlib.ExitStack() as stack:
        stack.enter_context(reseeded(train, seed))
        batch = next(iter(train.epoch(rng.key(seed))))
        batches.append(batch[0] if isinstance(batch, StepBatches) else batch)
        if valid is not None:
            stack.enter_context(reseeded(valid, seed))
            batches.append(next(iter(valid.ordered())))
    return batches


@contextlib.contextmanager
def reseeded(data: Source, seed: int) -> Generator[None]:
    """The source's own random streams start from the seed, and go on afterwards as if nothing had been."""
    before = [(generator, generator.get_state()) for generator in data.generators()]
    try:
        for generator, _ in before:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def step_numbers(
    task: Task, batch: Any, seed: int, device: torch.device, optimizer: Callable[[Problem], Optimizer]
) -> ProbeRecord:
    """The loss, the gradient's norm and its part along a fixed direction, and the norm of the update."""
    trial = copy.deepcopy(task).train()
    trainable = [p for p in trial.parameters() if p.requires_grad]
    with rng.scope(seed), torch.enable_grad():
        stepper, before = optimizer(trial), [p.detach().clone() for p in trainable]
        loss = trial(move(batch, device))
        loss.backward()
        gradients = [p.grad for p in trainable if p.grad is not None]
        stepper.step()
    updates = [p.detach() - old for p, old in zip(trainable, before, strict=True)]
    return {
        "loss": float(loss.detach()),
        "gradient": norm(gradients),
        "along": along(gradients, seed),
        "update": norm(updates),
    }


def norm(values: list[Tensor]) -> float:
    """√Σ v²."""
    return math.sqrt(sum(float(v.double().square().sum()) for v in values))


def along(gradients: list[Tensor], seed: int) -> float:
    """⟨g, r⟩ / √n with random signs r: tells gradients of one norm apart."""
    generator, total, count = torch.Generator().manual_seed(seed % 2**63), 0.0, 0
    for gradient in gradients:
        signs = torch.randint(2, gradient.shape, generator=generator) * 2 - 1
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        total += float((dense.detach().cpu().double() * signs).sum())
        count += signs.numel()
    return total / max(1.0, count) ** 0.5


def other_probe(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """In which of its parts another probe differs; None if it is the same step."""
    if "unrepeatable" in old or "unrepeatable" in new:
        return None
    if old.get("batch") != new.get("batch"):
        return "batch"
    scale = {"along": float(old.get("gradient", 0.0))}
    for name, tolerance in CLOSE.items():
        was, now = float(old.get(name, math.nan)), float(new.get(name, math.nan))
        size = scale.get(name, abs(was))
        same = was == now or (math.isnan(was) and math.isnan(now)) or abs(was - now) <= tolerance * size
        if not same:
            return name
    return None
