"""What is handed over: the file, read back, with the figures of what was read."""

import json
import tempfile
from collections.abc import Mapping
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
from torchlift.compress.running import free_memory, run
from torchlift.compress.scoring import ValidationMetric
from torchlift.compress.sweep import Sweep, SweepState
from torchlift.core.stored import valid_records
from torchlift.deploy.measuring import count_macs, file_size
from torchlift.tree import leaves


def read_back(
    model: nn.Module, source_model: nn.Module, folder: Path | None, card: Mapping[str, Any]
) -> tuple[nn.Module, int]:
    """The model as it is read from its file, and the file's size."""
    from torchlift.deploy import load, save

    with tempfile.TemporaryDirectory() as scratch:
        path = (Path(scratch) if folder is None else folder) / "model.tl"
        saved = save(model, path, card=card or None)
        return load(path, into=unfilled(source_model) if saved.needs_model else None).eval(), int(saved)


def unfilled(model: nn.Module) -> nn.Module:
    """A copy of a model whose weights are to be filled: until then they take no memory."""
    empty = {id(p): nn.Parameter(torch.empty_like(p), p.requires_grad) for p in model.parameters()}
    return copied(model, empty)


def deliver(
    sweep: Sweep,
    source_model: nn.Module,
    state: SweepState,
    targets: Targets,
    sensitivity: Sensitivity,
    example: Any,
    score: ValidationMetric | None,
    measured: Mapping[str, float],
    folder: Path | None,
    said: Mapping[str, Any],
) -> Compressed:
    """The result, with all figures taken from the file that holds it; ``measured``: before; ``said``: of
    inputs and outputs."""
    model = state.work.eval()
    before: dict[str, Any] = {
        "bytes": file_size(source_model),
        "parameters": sum(p.numel() for p in source_model.parameters()),
        **measured,
    }
    free_memory()  # what measuring the source's file took
    back, size = read_back(model, source_model, folder, said)
    free_memory()
    inputs = sweep.calibration.first(2)
    outputs = rows(run(source_model, inputs)), rows(run(back, inputs))
    achieved: dict[str, Any] = {
        "bytes": size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "macs": count_macs(back, sweep.calibration.first(1)),
        "output_error": output_error(source_model, back, sweep.calibration),
    }
    if score is not None:
        achieved["metric"] = score(back)
    card = {
        **said,
        "targets": {k: v for k, v in vars(targets).items() if v and k != "allocate"},
        "achieved": achieved,
        "before": before,
        "inputs": [{"shape": list(t.shape[1:]), "dtype": str(t.dtype)} for t in leaves(inputs)],
        "outputs": [{"shape": list(outputs[0].shape[1:])}],
        "calibration": {"samples": sweep.calibration.samples},
        "from": {"recipe": "compress", "torchlift": torchlift.__version__, "torch": str(torch.__version__)},
    }
    if folder is not None:
        files.write_file(folder / "card.json", json.dumps(card, indent=2).encode())
    return Compressed(
        model, table(sweep, source_model, state, sensitivity), card, example, outputs, sweep.calibration
    )


def table(
    sweep: Sweep, source_model: nn.Module, state: SweepState, sensitivity: Sensitivity
) -> list[LayerRow]:
    """What became of each weight."""
    quantized = {name for name, step, _ in valid_records(state.work) if step is not None}
    before = dict(source_model.named_parameters())
    _, reasons = maps_of(state.work)
    rows: list[LayerRow] = []
    for name, weight in state.work.named_parameters():
        if weight.ndim < 2:
            continue
        own = before.get(name, weight)
        why = "" if name in state.errors else reasons.get(name, "left alone by where= or keep=")
        form = state.forms.get(name)
        rows.append(
            LayerRow(
                name,
                tuple(weight.shape),
                tuple(own.shape),
                None if name not in quantized or form is None else form.bits,
                float((weight == 0).float().mean()),
                state.errors.get(name),
                sensitivity.get(name),
                why,
            )
        )
    return rows
