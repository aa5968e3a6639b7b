"""``torchlift invert``, behind its flags: model, observation, inversion, rival, page."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchlift import convex, inversion, report
from torchlift.cli.flags import ModelFlags
from torchlift.cli.output import readable
from torchlift.cli.pictures import read_array
from torchlift.cli.weights import load_weights, make_model
from torchlift.report.pictures import png

REGULARIZERS = {"tv": convex.TV, "l1": convex.L1, "l2": convex.L2, "wavelets": convex.Wavelets}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The inversion, as given on the command line."""

    model: str | None
    arg: tuple[str, ...]
    weights: str | None
    image: Path | None
    observation: Path | None
    shape: str | None
    sigma: float
    reg: str
    alpha: float | None
    noise: float | None
    method: str
    box: str | None
    rival: str
    max_iter: int | None
    seed: int
    out: Path


def perform(request: Request) -> dict[str, Any]:
    """Invert, write ``x.npy`` and ``report.html`` into the folder, and say what was found."""
    truth = None if request.image is None else read_array(request.image).float()
    shape = _sizes(request.shape) or (None if truth is None else tuple(truth.shape))
    if truth is not None and shape is not None and tuple(truth.shape) != shape:
        raise ValueError(f"--input has shape {tuple(truth.shape)}, --shape says {shape}")
    model = _model(request, shape)
    y = _observed(request, model, truth)
    options: dict[str, Any] = {
        "reg": _regularizer(request), "shape": shape, "noise": request.noise, "box": _box(request.box),
        "alpha": None if request.noise else request.alpha, "max_iter": request.max_iter,
    }  # fmt: skip
    results = {"torchlift": inversion.invert(model, y, method=request.method, **options)}
    if request.rival != "none":
        weight = results["torchlift"].alpha
        again: dict[str, Any] = options | {"noise": None, "alpha": weight, "max_iter": None}
        results[request.rival] = inversion.invert(model, y, method=request.rival, **again)
    return _write(request, results, y, truth)


def _model(request: Request, shape: tuple[int, ...] | None) -> nn.Module:
    example = torch.zeros(1, *(shape or (1,)))
    flags = ModelFlags(model=request.model, arg=request.arg, weights=request.weights)
    model = make_model(flags, None, example)
    if request.weights and request.model:
        load_weights(model, Path(request.weights))
    return model.float().eval()


def _observed(request: Request, model: nn.Module, truth: Tensor | None) -> Tensor:
    """The file of outputs, or the model's output for the picture with noise of standard deviation sigma."""
    if request.observation is not None:
        observed = read_array(request.observation).float()
        return observed if observed.ndim > 1 else observed[None]
    if truth is None:
        raise ValueError(
            "give --observation FILE (outputs to invert) or --input FILE (an input to send through)"
        )
    with torch.no_grad():
        try:
            y = model(truth[None])
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"the model does not take {request.image} of shape {tuple(truth.shape)}: {reason}"
            ) from error
    generator = torch.Generator().manual_seed(request.seed)
    return y + request.sigma * torch.randn(y.shape, generator=generator)


def _regularizer(request: Request) -> convex.Function:
    if request.reg not in REGULARIZERS:
        raise ValueError(f"--reg: no regularizer {request.reg!r}; known: {', '.join(REGULARIZERS)}")
    return REGULARIZERS[request.reg](0.01 if request.alpha is None else request.alpha)


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        raise ValueError(f"--shape is that of one input, as in 1,28,28; got {text!r}") from None


def _box(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        lo, hi = (float(end) for end in text.split(","))
    except ValueError:
        raise ValueError(f"--box takes two numbers, as in 0,1; got {text!r}") from None
    return lo, hi


def _write(request: Request, results: dict[str, Any], y: Tensor, truth: Tensor | None) -> dict[str, Any]:
    request.out.mkdir(parents=True, exist_ok=True)
    result = results["torchlift"]
    np.save(request.out / "x.npy", result.x.cpu().numpy())
    said: dict[str, Any] = {
        "folder": request.out,
        "report": request.out / "report.html",
        "array": request.out / "x.npy",
    }
    said |= {name: _facts(one, truth) for name, one in results.items()}
    shown = {name: _shown(value) for name, value in said["torchlift"].items() if value is not None}
    settings = {k: str(v) for k, v in dataclasses.asdict(request).items() if v not in (None, ())}
    histories = {name: one.history for name, one in results.items()}
    page = report.inversion_page("Inversion", shown, settings, _pictures(results, y, truth), histories)
    report.write(page, request.out / "report.html")
    return said


def _facts(result: inversion.Inversion, truth: Tensor | None) -> dict[str, Any]:
    """All numbers of an inversion."""
    tensors = ("x", "y", "output", "history")
    names = [field.name for field in dataclasses.fields(result) if field.name not in tensors]
    facts = {name: getattr(result, name) for name in names}
    return facts if truth is None else facts | {"psnr": float(inversion.psnr(result.x[:1], truth[None])[0])}


def _shown(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else readable(value)


def _pictures(results: dict[str, Any], y: Tensor, truth: Tensor | None) -> list[tuple[str, bytes]]:
    """Input, observation, reconstructions, error maps: of the first sample, where they are pictures."""
    drawn: list[tuple[str, bytes | None]] = []
    low, high = (None, None) if truth is None else (float(truth.min()), float(truth.max()))
    if truth is not None:
        drawn.append(("input", png(truth, low, high)))
    seen = y[0]
    drawn.append(("observation", png(seen if seen.ndim != 3 or len(seen) in (1, 3) else _tiled(seen))))
    for name, one in results.items():
        drawn.append((f"reconstruction: {name}", png(one.x[0], low, high)))
        if truth is not None:
            drawn.append((f"error map: {name}", png((one.x[0] - truth).abs(), 0.0, None)))
    return [(caption, data) for caption, data in drawn if data is not None]


def _tiled(channels: Tensor) -> Tensor:
    """The channels of a feature map side by side."""
    return torch.cat(list(channels), 1)[None]
