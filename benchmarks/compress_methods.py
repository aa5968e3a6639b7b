"""What ``tl.compress`` is held beside, each written down or called as its documentation has it.

Rounding; GPTQ, by error feedback; palettes by k-means; Torch-Pruning with the same polishing, then GPTQ;
static 8-bit integers of ONNX Runtime. All are given the same calibration inputs; norms are folded for all
where they can be; files of the first four are ours (records, entropy coder), so that only the weights differ.
Rounding and GPTQ take the better of two kinds of steps by the output's error on the calibration data.
"""

import copy
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchlift as tl
from compress_networks import PITCH, Case
from torchlift.channels.folding import fold_norms
from torchlift.compress.calibration import Calibration
from torchlift.compress.distance import output_error
from torchlift.compress.journal import StepJournal
from torchlift.compress.linear_maps import EmbeddingMap, LinearMap, maps_of
from torchlift.compress.polish import polished
from torchlift.compress.stream import LayerStream, first_calls, first_names, waves
from torchlift.compress.sweep import Sweep, leading
from torchlift.core.stored import store
from torchlift.deploy.measuring import file_size

EPOCHS = 20
"""Of polishing, ours and the rivals'."""

Cell = dict[str, Any]


def folded(one: Case) -> nn.Module:
    """The network with its norms in its layers, where they can be."""
    return fold_norms(one.model, (one.calibration[:2],)).eval()


def sweep_of(model: nn.Module, data: Tensor) -> Sweep:
    """What polishing wants to know."""
    calibration = Calibration.of(model, data, torch.device("cpu"))
    return Sweep(model, calibration, StepJournal(None, ""), lambda _: None, lambda _: True)


# GPTQ and rounding


def row_steps(weight: Tensor, bits: int, clipped: bool) -> Tensor:
    """One step for each row of W (groups, r, n): up to its largest entry, or to where the squared error is
    least."""
    top = 2 ** (bits - 1) - 1
    largest = weight.abs().amax(-1, keepdim=True) / top
    if not clipped:
        return largest
    best, chosen = torch.full_like(largest, torch.inf), largest
    for fraction in torch.linspace(0.2, 1, 41).tolist():
        step = fraction * largest
        error = (weight - step * levels_at(weight, step, top)).square().sum(-1, keepdim=True)
        best, chosen = torch.minimum(error, best), torch.where(error < best, step, chosen)
    return chosen


def levels_at(weight: Tensor, step: Tensor, top: int) -> Tensor:
    """The nearest whole numbers."""
    return torch.where(step > 0, weight / step, 0.0).round().clamp(-top, top)


def gptq(weight: Tensor, gram: Tensor, step: Tensor, bits: int) -> Tensor:
    """Levels of W (r, n) by error feedback, columns by their activations (Frantar et al., 2023)."""
    top = 2 ** (bits - 1) - 1
    kind = torch.float64 if len(gram) <= 2048 else torch.float32  # the published code's is float32
    gram = gram.to(kind) + 0.01 * gram.diagonal().mean().to(kind) * torch.eye(len(gram), dtype=kind)
    order = gram.diagonal().argsort(descending=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram[order][:, order]))
    upper = torch.linalg.cholesky(inverse, upper=True)
    w, levels, step = weight[:, order].to(kind), torch.zeros_like(weight), step.to(kind)
    for start in range(0, w.shape[1], 128):
        stop = min(start + 128, w.shape[1])
        errors = torch.zeros(len(w), stop - start, dtype=kind)
        for j in range(start, stop):
            own = levels_at(w[:, j : j + 1], step, top)
            levels[:, order[j]] = own[:, 0].to(levels)
            errors[:, j - start] = (w[:, j] - step[:, 0] * own[:, 0]) / upper[j, j]
            w[:, j:stop] -= errors[:, j - start, None] * upper[j, j:stop]
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    return levels


def quantized(one: Case, model: nn.Module, bits: int, *, feedback: bool) -> nn.Module:
    """By rounding or GPTQ, with the better of two kinds of steps."""
    tried = [on_grid(one, model, bits, clipped, feedback) for clipped in (False, True)]
    inputs = [(one.calibration,)]
    return min(tried, key=lambda candidate: output_error(model, candidate, inputs))


def on_grid(one: Case, model: nn.Module, bits: int, clipped: bool, feedback: bool) -> nn.Module:
    """Layer by layer, each for what the layers before it have become."""
    work = copy.deepcopy(model)
    calibration = Calibration.of(work, one.calibration, torch.device("cpu"))
    maps, _ = maps_of(work)
    ran = first_calls(work, maps, calibration)
    names = first_names(work, maps)
    stream = LayerStream(model, work, calibration, ran, names=names)
    for wave in waves(maps, ran, names):
        moments = stream.moments(wave) if feedback else {}
        for layer in leading(stream, wave):
            matrix = layer.matrix(work.get_submodule(layer.module), layer.weight_of(work)).float()
            step = row_steps(matrix, bits, clipped)
            if feedback and not isinstance(layer, EmbeddingMap):
                grams = moments[stream.key(layer)].xx
                rows = [gptq(w, g, s, bits) for w, g, s in zip(matrix, grams, step, strict=True)]
                levels = torch.stack(rows)
            else:
                levels = levels_at(matrix, step, 2 ** (bits - 1) - 1)
            write(layer, work, levels, step)
    return work


def write(layer: LinearMap, work: nn.Module, levels: Tensor, step: Tensor) -> None:
    """Levels and steps with their record."""
    module, shape = work.get_submodule(layer.module), layer.weight_of(work).shape
    store(
        work,
        layer.weight,
        step=layer.step_tensor(module, step, shape),
        levels=layer.tensor(module, levels, shape).to(torch.int32),
    )


# Palettes


def palettes(model: nn.Module, colors: int) -> tuple[nn.Module, int]:
    """Every matrix in so many values by k-means, and bytes: the entropy of the indices, or our file."""
    work, bare, indices = copy.deepcopy(model), copy.deepcopy(model), 0.0
    with torch.no_grad():
        for (_, weight), (_, empty) in zip(work.named_parameters(), bare.named_parameters(), strict=True):
            if weight.ndim < 2:
                continue
            values = weight.flatten().double()
            centers = values.quantile(torch.linspace(0.01, 0.99, colors, dtype=torch.float64))
            for _ in range(30):
                nearest = torch.bucketize(values, (centers[1:] + centers[:-1]) / 2)
                counts = torch.bincount(nearest, minlength=colors)
                sums = torch.zeros(colors, dtype=torch.float64).index_add_(0, nearest, values)
                centers = torch.where(counts > 0, sums / counts.clamp(min=1), centers).sort().values
            nearest = torch.bucketize(values, (centers[1:] + centers[:-1]) / 2)
            weight.copy_(centers[nearest].reshape(weight.shape).to(weight))
            share = torch.bincount(nearest, minlength=colors).double() / len(values)
            indices += float(-(share * share.clamp(min=1e-30).log2()).sum()) * len(values) / 8 + 4 * colors
            empty.zero_()
    return work, min(file_size(work), file_size(bare) + round(indices))


# Torch-Pruning


def torch_pruned(model: nn.Module, one: Case, ratio: float) -> nn.Module:
    """By Torch-Pruning's group norm, the last layer left alone."""
    import torch_pruning as tp

    work, example = copy.deepcopy(model), one.calibration[:2]
    last = [m for m in work.modules() if isinstance(m, nn.Linear)][-1]
    heads: dict[nn.Module, int] = {
        m: m.num_heads for m in work.modules() if isinstance(m, nn.MultiheadAttention)
    }
    pruner = tp.pruner.BasePruner(
        work,
        example,
        importance=tp.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=ratio,
        ignored_layers=[last],
        num_heads=heads,
    )
    pruner.step()
    work = work.eval()
    work(example)
    return work


# ONNX Runtime


def session(path: Path) -> Any:
    """One thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def outputs_of(path: Path, x: Tensor) -> Tensor:
    """What a file gives."""
    run = session(path)
    name = run.get_inputs()[0].name
    outputs = [run.run(None, {name: some.numpy()})[0] for some in x.split(100)]
    return torch.from_numpy(np.concatenate(outputs))


def static_int8(one: Case, model: nn.Module, folder: Path) -> Path:
    """``quantize_static`` as its documentation has it: QDQ, a scale for each channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.batches: Iterator[Any] = iter([{name: some.numpy()} for some in one.calibration.split(32)])

        def get_next(self) -> Any:
            return next(self.batches, None)

    plain, ready, small = (folder / f"{stage}.onnx" for stage in ("float", "ready", "int8"))
    tl.deploy.export(model, one.calibration[:2], plain)
    quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    name = session(plain).get_inputs()[0].name
    quantize_static(str(ready), str(small), Reader(name), quant_format=QuantFormat.QDQ, per_channel=True)
    return small


def call_seconds(paths: Sequence[Path], x: Tensor, rounds: int = 200) -> list[float]:
    """CPU seconds of a call of each file, medians; they take turns."""
    sessions = [session(path) for path in paths]
    feeds = [{run.get_inputs()[0].name: x.numpy()} for run in sessions]
    seconds: list[list[float]] = [[] for _ in paths]
    for _ in range(rounds):
        for run, feed, own in zip(sessions, feeds, seconds, strict=True):
            start = time.process_time()
            run.run(None, feed)
            own.append(time.process_time() - start)
    return [statistics.median(own[rounds // 10 :]) for own in seconds]


# Cells


def scored(one: Case, outputs: Tensor) -> Cell:
    """Which test samples outputs get right, and how often they say what the original's do."""
    same = 100 * float((outputs.argmax(1) == one.answers).float().mean())
    return {"right": one.right(outputs), "same answer": round(same, 2)}


def measured(one: Case, model: nn.Module, size: int | None = None) -> Cell:
    """A model's answers, bytes, and error of outputs on unlabelled inputs that no method has seen."""
    return {
        **scored(one, one.outputs(model)),
        "output error": output_error(one.model, model, [(one.unseen,)]),
        "bytes": size or file_size(model),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def kept(folder: Path, name: str, compute: Callable[[], nn.Module]) -> nn.Module:
    """A model computed once, and in a file after that."""
    path = folder / f"{name}.pt"
    if not path.exists():
        torch.save(compute(), path)
    return torch.load(path, weights_only=False)


def ours_of(one: Case, folder: Path, options: dict[str, Any]) -> nn.Module:
    """What one call of compress delivers."""
    name = "ours " + " ".join(f"{key}={value}" for key, value in options.items())
    return kept(
        folder, name, lambda: tl.compress(one.model, one.calibration, progress=False, **options).model
    )


def torch_pruned_of(one: Case, folder: Path, ratio: float) -> nn.Module:
    """By Torch-Pruning, polished as ours is."""

    def compute() -> nn.Module:
        small = torch_pruned(one.model, one, ratio)
        return polished(sweep_of(one.model, one.calibration), small, one.calibration, EPOCHS)

    return kept(folder, f"Torch-Pruning {ratio}", compute)


def ours(one: Case, model: nn.Module, folder: Path, **options: Any) -> Cell:
    """One call of compress."""
    del model
    return measured(one, ours_of(one, folder, options))


def in_bytes_of_gptq(one: Case, model: nn.Module, folder: Path, bits: int) -> Cell:
    """One call of compress, with the size of GPTQ's file as its target."""
    return ours(one, model, folder, bytes=file_size(quantized(one, model, bits, feedback=True)))


def rounding(one: Case, model: nn.Module, folder: Path, bits: int) -> Cell:
    """To the nearest."""
    del folder
    return measured(one, quantized(one, model, bits, feedback=False))


def by_gptq(one: Case, model: nn.Module, folder: Path, bits: int) -> Cell:
    """GPTQ and our coder."""
    del folder
    return measured(one, quantized(one, model, bits, feedback=True))


def by_palette(one: Case, model: nn.Module, folder: Path, colors: int) -> Cell:
    """k-means."""
    del folder
    return measured(one, *palettes(model, colors))


def by_torch_pruning(one: Case, model: nn.Module, folder: Path, ratio: float, bits: int) -> Cell:
    """Torch-Pruning, polished as ours is, then GPTQ."""
    del model
    small = fold_norms(torch_pruned_of(one, folder, ratio), (one.calibration[:2],)).eval()
    return measured(one, quantized(one, small, bits, feedback=True))


def by_integers(one: Case, model: nn.Module, folder: Path) -> Cell:
    """ONNX Runtime; bytes of the file as it is, and squeezed by zlib."""
    path = static_int8(one, model, folder)
    return {
        **scored(one, outputs_of(path, one.inputs)),
        "output error": distance(one, path),
        "bytes": len(zlib.compress(path.read_bytes(), 9)),
        "bytes as written": path.stat().st_size,
    }


@torch.no_grad()
def distance(one: Case, path: Path) -> float:
    """The error of a file's outputs on unlabelled inputs."""
    wanted = one.model(one.unseen)
    missed = (outputs_of(path, one.unseen) - wanted).square().sum()
    return float(missed / (wanted - wanted.mean(0)).square().sum())


def original(one: Case, model: nn.Module, folder: Path) -> Cell:
    """As it was trained."""
    del model, folder
    return measured(one, one.model)


def call_times(one: Case, model: nn.Module, folder: Path) -> Cell:
    """ONNX files of one sample's call: CPU time beside the original's, with their accuracy."""
    paths = {"original": folder / "float.onnx", "ONNX Runtime int8": static_int8(one, model, folder)}
    for label, options in TIMED.items():
        if one.pitch and label == "ours, half off, 8 bits, polished":
            continue
        path = folder / f"{label}.onnx"
        integers: dict[str, Any] = {"integer": True, "calibration": one.calibration}
        integers = integers if options["bits"] == 8 else {}
        tl.deploy.export(ours_of(one, folder, options), one.calibration[:2], path, **integers)
        paths[label] = path
    try:
        pruned = folder / "pruned.onnx"
        tl.deploy.export(torch_pruned_of(one, folder, 0.5), one.calibration[:2], pruned)
        paths["Torch-Pruning, half off, polished"] = pruned
    except Exception as error:  # a tool that does not take this network
        del error
    seconds = call_seconds(list(paths.values()), one.calibration[:1])
    rights = [float(one.right(outputs_of(path, one.inputs)).float().mean()) for path in paths.values()]
    rows = zip(paths, seconds, rights, strict=True)
    return {
        "calls": {
            label: {"time": round(own / seconds[0], 4), "accuracy": round(100 * right, 2)}
            for label, own, right in rows
        }
    }


HALF: dict[str, Any] = {"ratio": 0.5, "bits": 4, "polish": EPOCHS}

TIMED: dict[str, dict[str, Any]] = {
    "ours, half off, polished": HALF,
    "ours, 8 bits": {"bits": 8},
    "ours, half off, 8 bits, polished": HALF | {"bits": 8},
}
"""Calls that are timed; those of 8 bits compute in integers."""

Method = Callable[[Case, nn.Module, Path], Cell]


def method(do: Callable[..., Cell], *args: Any, **options: Any) -> Method:
    """A method with its settings."""
    return lambda one, model, folder: do(one, model, folder, *args, **options)


METHODS: dict[str, Method] = {
    "original": original,
    **{f"ours, {b} bits": method(ours, bits=b) for b in (8, 4, 3, 2)},
    "ours, quarter off, 4 bits, polished": method(ours, ratio=0.25, bits=4, polish=EPOCHS),
    "ours, half off, 4 bits, polished": method(ours, **HALF),
    "ours, half off, 3 bits, polished": method(ours, **HALF | {"bits": 3}),
    "ours, 2 bits, polished": method(ours, bits=2, polish=EPOCHS),
    **{f"ours, bytes of GPTQ at {b} bits": method(in_bytes_of_gptq, b) for b in (4, 3, 2)},
    **{f"rounding, {b} bits": method(rounding, b) for b in (8, 4, 3, 2)},
    **{f"GPTQ, {b} bits": method(by_gptq, b) for b in (4, 3, 2)},
    **{f"palette of {c}": method(by_palette, c) for c in (16, 8, 4)},
    **{
        f"Torch-Pruning, {w}, polished, GPTQ 4 bits": method(by_torch_pruning, r, 4)
        for w, r in (("quarter off", 0.25), ("half off", 0.5))
    },
    "ONNX Runtime int8": by_integers,
    "call times": call_times,
}

ONCE = {"call times"}
"""Methods that run for the first seed alone."""

SLOW = {
    "ours, quarter off, 4 bits, polished",
    "ours, 2 bits, polished",
    "ours, bytes of GPTQ at 4 bits",
    "ours, bytes of GPTQ at 3 bits",
    "ours, bytes of GPTQ at 2 bits",
}
"""Left out for the network that others trained: a call takes minutes there."""


def methods_of(network: str, seed: int) -> list[str]:
    """What runs on a network and a seed; the network that others trained has one seed."""
    if network == PITCH:
        return [] if seed else [label for label in METHODS if label not in SLOW]
    return [label for label in METHODS if not seed or label not in ONCE]
