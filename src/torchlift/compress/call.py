"""``tl.compress``: a trained network and a handful of unlabelled inputs become a small network."""

import dataclasses
import json
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlift import files
from torchlift.channels.copies import copied
from torchlift.channels.example_inputs import check_plain
from torchlift.channels.folding import NORM, fold_norms
from torchlift.compress.calibration import Calibration
from torchlift.compress.cutting import self_contained
from torchlift.compress.delivery import deliver
from torchlift.compress.journal import StepJournal, identity_of
from torchlift.compress.planning import Targets, as_written, compressed, on_grids, shorten, written_bytes
from torchlift.compress.polish import polished
from torchlift.compress.result import Compressed, said
from torchlift.compress.scoring import ValidationMetric
from torchlift.compress.sweep import Sweep
from torchlift.core import matches, select
from torchlift.core.weights import computed
from torchlift.data.loading import load
from torchlift.deploy.card import schema_card
from torchlift.deploy.exporting import export
from torchlift.errors import TorchliftError
from torchlift.packed.trees import FORWARD, hooks
from torchlift.train.engines import best_device, usable_device
from torchlift.train.progress import Progress

GROUPS = (32, 64, 128)


def compress(
    model: nn.Module,
    calibration: Any,
    *,
    bytes: int | None = None,
    macs: float | None = None,
    latency: float | None = None,
    integer: bool = False,
    bits: int | None = None,
    ratio: float | None = None,
    sparsity: float | None = None,
    accuracy: float | None = None,
    valid: Any = None,
    metric: Callable[[nn.Module, Any], float] | None = None,
    polish: float = 0,
    sweeps: int = 1,
    where: str = "*",
    keep: str | Sequence[str] = (),
    group: int | None = None,
    allocate: bool = True,
    example: Any = None,
    device: str = "auto",
    progress: bool = True,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    card: Mapping[str, Any] | None = None,
) -> Compressed:
    """A small copy of a trained model, from 64 to 1,024 inputs without labels and without training.

    ``calibration``: tensors, a loader, anything :func:`fit` takes, or a folder or a name for
    ``tl.data.load``; labels are ignored. Targets, alone or
    together:
    ``bytes`` of the file, ``macs`` of one sample, ``latency`` in milliseconds, ``bits`` of each weight,
    the ``ratio``
    of channels to cut, the ``sparsity`` of the weights. ``integer=True``: the latency is that of 8-bit
    integers in ONNX Runtime, one thread, which come before any cut; ``.export(path, integer=True)`` writes
    that file (with ``out=``, ``model.onnx`` is there), and the card says under ``"integer"`` how fast it is.
    Without any: as small as stays within 1 % of the
    outputs, or keeps an ``accuracy`` (or ``metric``) on ``valid``. Of a ``ratio``, each layer takes its share
    by what it costs the outputs, with no more channels, weights or MACs left than the same part of each layer
    would leave; ``allocate=False`` cuts the same part of each. Widths are multiples of 8 or 4 where that is
    near: 11 channels can take longer than 16.
    ``polish``: epochs of distillation on the same inputs. ``sweeps``: how often the layers are gone through.
    ``where``: a glob on the names of weights to compress; ``keep``: globs of those to leave alone.
    ``group``: 32, 64
    or 128 inputs of a row share a step. ``valid`` and ``metric(model, batch)`` add a figure to the card. With
    ``out=`` a folder, the call can be resumed when interrupted, or polished later, and leaves ``model.tl``
    and ``card.json``.
    ``card``: of the given model; what it says of inputs and outputs is in the file, for ``predict``. Splits
    of ``tl.data`` say it themselves.
    """
    check_arguments(model, polish, sweeps, group)
    target_device = usable_device(best_device() if device == "auto" else device)
    about = said(card or {})
    if isinstance(calibration, str | os.PathLike):
        calibration = load(os.fspath(calibration))
    if all(hasattr(calibration, attribute) for attribute in ("train", "loss", "schema")):  # Splits
        about = about or schema_card(calibration.schema, calibration.loss)
        calibration = calibration.train
    if valid is None and (accuracy is not None or metric is not None):
        name = "metric" if accuracy is None else "accuracy"
        raise TorchliftError(f"{name}= is measured on validation data: pass valid=(inputs, labels), too.")
    if integer and bits is None and bytes is None:
        bits = 8
    targets = Targets(bytes, macs, latency, bits, ratio, sparsity or 0.0, group, accuracy, allocate, integer)
    foldable = where == "*" and not keep and self_contained(model)
    there = all(p.device == target_device for p in model.parameters())
    source_model = model if there else copied(model).to(target_device).eval()
    data = Calibration.of(source_model, calibration, target_device)
    chosen = selection(source_model, where, keep)
    folder = None if out is None else Path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise TorchliftError(f"out= is a folder; {folder} is a file.")
    settings = {  # polishing comes after all steps of the journal
        **dataclasses.asdict(targets),
        "sweeps": sweeps,
        "where": where,
        "keep": list(keep),
    }
    identity = "" if folder is None else identity_of(model, iter(data), settings)
    bar = Bar(progress)
    original = (
        fold_norms(source_model, data.first(2)) if foldable and has_norms(source_model) else source_model
    )
    score = None if valid is None else ValidationMetric(valid, metric, target_device)
    before = {} if score is None else {"metric": score(source_model)}  # a metric that fails fails at once
    plain = not foldable and has_norms(original)
    journal = StepJournal(folder, identity, resume=resume)
    sweep = Sweep(original, data, journal, bar, chosen, plain=plain)
    try:
        state, sensitivity = compressed(sweep, targets_of_weights(about, targets), sweeps, score)
        if polish:
            work = polished(sweep, state.work, calibration, polish)
            if on_grids(state):
                shorten(sweep, work)
            trained = dataclasses.replace(state, work=work)
            if targets.bytes is None or written_bytes(sweep, trained) <= targets.bytes:
                state = trained  # moved levels may take more bytes
    finally:
        bar.stop()
    state = dataclasses.replace(state, work=as_written(sweep, state))
    example = data.first(2) if example is None else example
    done = deliver(sweep, source_model, state, targets, sensitivity, example, score, before, folder, about)
    return with_integers(done, folder) if integer else done


def with_integers(done: Compressed, folder: Path | None) -> Compressed:
    """The card with what the integer file takes at one sample; with a folder, the file."""
    example = done.calibration.first(1)
    with tempfile.TemporaryDirectory() as scratch:
        path = (Path(scratch) if folder is None else folder) / "model.onnx"
        done.card["integer"] = export(
            done.model, example, path, integer=True, calibration=done.calibration
        ).card
    done.card["achieved"]["latency"] = done.card["integer"]["milliseconds"]
    if folder is not None:
        files.write_file(folder / "card.json", json.dumps(done.card, indent=2).encode())
    return done


def targets_of_weights(about: Mapping[str, Any], targets: Targets) -> Targets:
    """The targets of the weights, when the file also says this of inputs and outputs."""
    if targets.bytes is None or not about:
        return targets
    text = json.dumps(about, separators=(",", ":")).encode()
    return dataclasses.replace(targets, bytes=max(1, targets.bytes - len(zlib.compress(text, 9)) - 8))


def has_norms(model: nn.Module) -> bool:
    """Whether there is a batch norm to fold: otherwise nothing needs a copy."""
    return any(isinstance(module, NORM) for module in model.modules())


def check_arguments(model: nn.Module, polish: float, sweeps: int, group: int | None) -> None:
    """One line for what no call can mean."""
    check_plain(model)
    names = [name for name, module in model.named_modules() if computed(module)]
    if names:
        raise TorchliftError(
            f"weights of {names[0] or 'the model'} are computed in every call (weight norm or another "
            "parametrization): write them into the layer first (torch.nn.utils.parametrize."
            "remove_parametrizations, or remove_weight_norm)."
        )
    bad = next((n for n, p in model.named_parameters() if not bool(torch.isfinite(p).all())), None)
    if bad is not None:
        raise TorchliftError(f"{bad} holds NaN or infinite numbers: compress a model that was trained well.")
    hooked = [name for name, module in model.named_modules() if hooks(module, FORWARD)]
    if hooked:
        raise TorchliftError(
            f"{hooked[0] or 'the model'} has a forward hook, which no file can hold: remove it, or write "
            "what it does into forward."
        )
    if model.training:
        raise TorchliftError(
            "the model is in training mode: call model.eval() first, so that it runs as it will."
        )
    if isinstance(polish, bool) or not isinstance(polish, int | float) or not 0 <= polish < math.inf:
        raise TorchliftError(f"polish is a number of epochs, 0 or more; got {polish!r}.")
    if not isinstance(sweeps, int) or sweeps < 1:
        raise TorchliftError(f"sweeps is a whole number, 1 or more; got {sweeps!r}.")
    if group not in (None, *GROUPS):
        raise TorchliftError(f"group is None (a step for each row), 32, 64 or 128; got {group!r}.")


def selection(model: nn.Module, where: str, keep: str | Sequence[str]) -> Callable[[str], bool]:
    """Which weights are compressed; globs that fit nothing are an error."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    candidates = {*names, *(name.rpartition(".")[0] for name in names)}
    globs = (keep,) if isinstance(keep, str) else tuple(keep)
    for glob in (where, *globs):
        select(sorted(candidates), glob, "compress")

    def fits(name: str, glob: str) -> bool:
        return matches(name, glob) or matches(name.rpartition(".")[0], glob)

    def chosen(name: str) -> bool:
        return fits(name, where) and not any(fits(name, glob) for glob in globs)

    if not any(chosen(name) for name in names):
        raise TorchliftError("where= and keep= leave no weight to compress.")
    return chosen


class Bar:
    """Layers as they are solved, on a terminal."""

    def __init__(self, enabled: bool) -> None:
        self.progress = Progress(enabled)
        self.count = 0

    def __call__(self, layer: str) -> None:
        """A layer is at hand."""
        if self.count == 0:
            self.progress.start("compress", 1, 0)
        self.count += 1
        self.progress.update(0, layer)

    def stop(self) -> None:
        """End the bar."""
        self.progress.stop()
