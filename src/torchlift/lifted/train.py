"""``train``: lifted training of an ordinary module."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.lifted.bcd import BCD
from torchlift.lifted.contrastive import Contrastive
from torchlift.lifted.data import Data, as_pair, batches, metric, whole
from torchlift.lifted.history import Log, Trained
from torchlift.lifted.isgm import ISGM
from torchlift.lifted.network import Network
from torchlift.lifted.read import NotAChainError, read
from torchlift.lifted.shard import Alone, Shard
from torchlift.lifted.splitting import Splitting
from torchlift.lifted.traced import Traced
from torchlift.lifted.unified import Unified, UnifiedISGM

Method = BCD | ISGM | Contrastive | Splitting | UnifiedISGM
_METHODS: dict[str, type[Method]] = {
    "bcd": BCD,
    "isgm": ISGM,
    "contrastive": Contrastive,
    "splitting": Splitting,
    "unified": UnifiedISGM,
}


@dataclasses.dataclass
class _Run:
    model: nn.Module
    network: Network
    data: Data
    epochs: int
    valid: tuple[Tensor, Tensor] | None
    generator: torch.Generator
    shard: Shard
    log: Log

    def note(self, parts: Tensor, samples: int) -> None:
        """Write the weights back, then report."""
        self.network.write_back()
        score = None if self.valid is None else metric(self.model, self.valid)
        self.log.add(parts, samples, self.network.mus, score)


@torch.no_grad()
def train(
    model: nn.Module,
    data: Data,
    *,
    method: str | Method = "isgm",
    penalty: str = "bregman",
    mu: float | Sequence[float] = 1.0,
    loss: str | Activation = "cross_entropy",
    epochs: int = 10,
    valid: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    progress: bool = True,
    shard: Shard | None = None,
    **options: Any,
) -> Trained:
    """min loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l) over weights and states; the weights end in ``model``.

    ``method``: "bcd" (all samples, exact blocks), "isgm" (mini-batches), "contrastive", "splitting" or
    "unified", with its options as further keywords (``order=``, …), or a value such as ``BCD(...)``.
    ``loss``: "cross_entropy", "mse" (½‖v − y‖²), "bce", or any activation, whose Bregman penalty it is.
    Networks with skip connections are read as K u, M u = V z, z = σ(W u + b) and trained by ``UnifiedISGM``.
    """
    unified = _unified(model, method, penalty)
    if unified is not None:
        rule, weight = _unified_rule(method, penalty, mu, options)
        with torch.enable_grad():
            done = rule(
                unified, data, mu=weight, loss=loss, epochs=epochs, valid=valid, seed=seed, progress=progress
            )
        return Trained(model, done.history, done.seconds)
    chosen = _method(method, options)
    run = _Run(
        model,
        Network.of(model, penalty, mu, loss),
        data,
        epochs,
        valid,
        torch.Generator().manual_seed(seed),
        shard or Alone(),
        Log(epochs, progress and sys.stderr is not None),
    )
    match chosen:
        case BCD():
            _bcd(run, chosen)
        case ISGM():
            _isgm(run, chosen)
        case Contrastive():
            _contrastive(run, chosen)
        case Splitting():
            _splitting(run, chosen)
        case UnifiedISGM():
            raise AssertionError("handled above")
    return Trained(model, run.log.rows, run.log.seconds)


def _unified(model: nn.Module, method: str | Method, penalty: str) -> Unified | None:
    """The model in the unified form if it is not a chain of layers, or if that is asked for."""
    if isinstance(model, Unified):
        return model
    if method == "unified" or isinstance(method, UnifiedISGM):
        return Traced(model)
    try:
        read(model)
    except NotAChainError:
        if method != "isgm" or penalty != "bregman":
            raise
        return Traced(model)
    return None


def _unified_rule(
    method: str | Method, penalty: str, mu: Any, options: dict[str, Any]
) -> tuple[UnifiedISGM, float]:
    rule = _method("unified" if method == "isgm" else method, options)
    if not isinstance(rule, UnifiedISGM) or penalty != "bregman" or not isinstance(mu, int | float):
        raise ValueError(
            "lifted.train: networks in the unified form need method 'isgm', penalty 'bregman' and one mu, "
            f"got {method!r}, {penalty!r}, {mu!r}"
        )
    return rule, float(mu)


def _method(method: str | Method, options: dict[str, Any]) -> Method:
    if not isinstance(method, str):
        return dataclasses.replace(method, **options)
    if method not in _METHODS:
        raise ValueError(f"lifted.train: no method {method!r}; known: {', '.join(_METHODS)}")
    known = [field.name for field in dataclasses.fields(_METHODS[method])]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(
            f"lifted.train: method {method!r} has no option {unknown[0]!r}; it has {', '.join(known)}"
        )
    return _METHODS[method](**options)


def _bcd(run: _Run, method: BCD) -> None:
    x, y = whole(run.model, run.data)
    targets = run.network.targets(y, x)
    samples = int(run.shard.sum(torch.tensor(len(x))))
    for parts in method(run.network, x, targets, run.epochs, run.shard):
        run.note(parts, samples)


def _splitting(run: _Run, method: Splitting) -> None:
    x, y = whole(run.model, run.data)
    for parts in method(run.network, x, run.network.targets(y, x), run.epochs):
        run.note(parts, len(x))


def _isgm(run: _Run, method: ISGM) -> None:
    seen, total = 0, float("inf")
    pair = as_pair(run.data)
    if pair is not None:
        total = run.epochs * -(-len(pair[0]) // method.batch_size)
    for _ in range(run.epochs):
        epoch = batches(run.model, run.data, method.batch_size, run.generator)
        parts, samples, seen = method.epoch(run.network, epoch, seen, total)
        run.note(parts, samples)


def _contrastive(run: _Run, method: Contrastive) -> None:
    optimizer = torch.optim.Adam([layer.theta for layer in run.network.layers], lr=method.lr)
    for _ in range(run.epochs):
        epoch = batches(run.model, run.data, method.batch_size, run.generator)
        run.note(*method.epoch(run.network, epoch, optimizer))
