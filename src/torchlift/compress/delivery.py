"""What is handed over: the file, read back, with the figures of what was read."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift
from torchlift import files
from torchlift.channels.copies import copied
from torchlift.compress.distance import output_error, rows
from torchlift.compress.linear_maps import maps_of
from torchlift.compress.planning import Sensitivity, Targets
from torchlift.compress.result import Compressed, LayerRow
from torchlift.compress.stream import run
from torchlift.compress.sweep import State, Sweep
from torchlift.core.stored import stored
from torchlift.deploy.measuring import count_macs, file_size
from torchlift.train.batches import source
from torchlift.tree import leaves, move

Metric = Callable[[nn.Module, Any], float]


def read_back(model: nn.Module, given: nn.Module, folder: Path | None) -> tuple[nn.Module, int]:
    """The model as it is read from its file, and the file's size."""
    from torchlift.deploy import load, save

    with tempfile.TemporaryDirectory() as scratch:
        path = (Path(scratch) if folder is None else folder) / "model.tl"
        saved = save(model, path)
        return load(path, into=copied(given) if saved.needs_model else None).eval(), int(saved)


def deliver(
    sweep: Sweep,
    given: nn.Module,
    state: State,
    targets: Targets,
    sensitivity: Sensitivity,
    example: Any,
    judged: tuple[Any, Metric | None],
    folder: Path | None,
) -> Compressed:
    """The result, with all figures taken from the file that holds it."""
    model = state.work.eval()
    back, size = read_back(model, given, folder)
    inputs = sweep.calibration.first(2)
    outputs = rows(run(given, inputs)), rows(run(back, inputs))
    achieved: dict[str, Any] = {
        "bytes": size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "macs": count_macs(back, sweep.calibration.first(1)),
        "output_error": output_error(given, back, sweep.calibration),
    }
    before: dict[str, Any] = {
        "bytes": file_size(given),
        "parameters": sum(p.numel() for p in given.parameters()),
    }
    valid, metric = judged
    if valid is not None:
        for name, one in (("before", given), ("after", back)):
            (before if name == "before" else achieved)["metric"] = scored(one, valid, metric, sweep)
    card = {
        "targets": {k: v for k, v in vars(targets).items() if v},
        "achieved": achieved,
        "before": before,
        "inputs": [{"shape": list(t.shape[1:]), "dtype": str(t.dtype)} for t in leaves(inputs)],
        "outputs": [{"shape": list(outputs[0].shape[1:])}],
        "calibration": {"samples": sweep.calibration.samples},
        "made_by": {"call": "compress", "torchlift": torchlift.__version__, "torch": torch.__version__},
    }
    if folder is not None:
        files.write(folder / "card.json", json.dumps(card, indent=2).encode())
    return Compressed(model, table(sweep, given, state, sensitivity), card, example, outputs)


def scored(model: nn.Module, valid: Any, metric: Metric | None, sweep: Sweep) -> float:
    """The mean over validation samples of ``metric(model, batch)``; accuracy where there is none."""
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in source(valid, 256, shuffle=False).ordered():
            batch = move(batch, sweep.calibration.device)
            size = len(next(leaves(batch)))
            total += size * float(accuracy(model, batch) if metric is None else metric(model, batch))
            count += size
    return total / max(count, 1)


def accuracy(model: nn.Module, batch: Any) -> float:
    """The part of samples whose largest output is the label."""
    from torchlift.loss import call, output, split

    x, y = split(batch)
    return float((output(call(model, x)).argmax(1) == y).float().mean())


def table(sweep: Sweep, given: nn.Module, state: State, sensitivity: Sensitivity) -> list[LayerRow]:
    """What became of each weight."""
    known = stored(state.work)
    before = dict(given.named_parameters())
    _, reasons = maps_of(state.work)
    found: list[LayerRow] = []
    for name, weight in state.work.named_parameters():
        if weight.ndim < 2:
            continue
        record, own = known.get(name), before.get(name, weight)
        why = "" if name in state.errors else reasons.get(name, "left alone as asked")
        form = state.forms.get(name)
        found.append(
            LayerRow(
                name,
                tuple(weight.shape),
                tuple(own.shape),
                None if record is None or form is None else form.bits,
                float((weight == 0).float().mean()),
                state.errors.get(name),
                sensitivity.get(name),
                why,
            )
        )
    return found
