"""A model and an example input, as ``measure`` and ``export`` name them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from torchlift import deploy
from torchlift.cli.datasets import LoadedData, load_data
from torchlift.cli.flags import ModelFlags
from torchlift.cli.models import build_model
from torchlift.cli.pairs import parse_pairs
from torchlift.deploy.predicting import load_card, load_run
from torchlift.errors import TorchliftError
from torchlift.train import checkpoint


class WeightsAlone(ValueError):
    """A file that needs an instance of the user's class."""


def open_model(
    flags: ModelFlags, path: str | None = None, data: LoadedData | None = None
) -> tuple[nn.Module, Tensor]:
    """The model with its weights, and an example of one sample; of a run's folder or a packed file where one
    is given. ``data``: those that the flags name, where they are read already."""
    if path is not None:
        card = load_card(path)
        example = parse_example(flags.example) if flags.example else example_by(card, path)
        return open_run_model(flags, path, card).eval(), example
    if data is None and flags.data is not None:
        data = load_data(flags.data, flags.data_folder, 0)
    example = parse_example(flags.example) if flags.example else example_of(data)
    model = make_model(flags, data, example)
    if flags.weights and flags.model:
        load_weights(model, Path(flags.weights))
    return model.eval(), example


def open_run_model(flags: ModelFlags, path: str, card: Mapping[str, Any]) -> nn.Module:
    """The model of a run's folder or packed file; with ``--model`` it goes into one of that class."""
    fresh = None
    if flags.model is not None:
        shape = card.get("input", {}).get("shape")
        outputs = len(card.get("output", {}).get("classes", ())) or None
        options = parse_pairs("--arg", flags.arg)
        fresh = build_model(flags.model, options, None if shape is None else tuple(shape), outputs)
    try:
        return load_run(path, into=fresh)
    except TorchliftError as error:
        if "into=" in str(error) and fresh is None:
            raise WeightsAlone(f"{path} holds weights alone: pass --model file.py:factory as well") from error
        raise


def example_by(card: Mapping[str, Any], path: str) -> Tensor:
    """One sample of the shape that a card says."""
    schema = card.get("input", {})
    width = sum(len(column["mean"]) for column in schema.get("columns", ()))
    shape = [width] if width else schema.get("shape")
    if shape is None:
        raise ValueError(f"{path} does not say what its inputs are: pass --example 1,3,32,32")
    whole = str(schema.get("dtype", "float32")).startswith("int")
    return parse_example(",".join(map(str, [1, *shape])) + (":int" if whole else ""))


def make_model(flags: ModelFlags, data: LoadedData | None, example: Tensor) -> nn.Module:
    """By its name, or from a packed file, which needs none."""
    if flags.model is None:
        if flags.weights is None:
            raise ValueError("no model given: pass --model, or --weights with a packed file")
        return deploy.load(Path(flags.weights))
    shape, outputs = (tuple(example.shape[1:]), 10) if data is None else (data.shape, data.outputs)
    options = parse_pairs("--arg", flags.arg)
    named = {"vocabulary", "outputs", "classes"} & set(options)
    return build_model(flags.model, options, shape, options[named.pop()] if named else outputs)


def parse_example(text: str) -> Tensor:
    """``1,3,32,32`` → random numbers of that shape; ``1,64:int`` → tokens, all of them 0."""
    sizes, _, kind = text.partition(":")
    try:
        shape = [int(size) for size in sizes.replace("x", ",").split(",")]
        if kind not in ("", "float", "int") or min(shape) < 1:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--example takes a shape, batch first, as in 1,3,32,32 or 1,64:int; got {text!r}"
        ) from None
    generator = torch.Generator().manual_seed(0)
    return torch.zeros(shape, dtype=torch.int64) if kind == "int" else torch.randn(shape, generator=generator)


def example_of(data: LoadedData | None) -> Tensor:
    """The first sample of the data."""
    if data is None or data.shape is None:
        raise ValueError("no example input: pass --example 1,3,32,32 (a shape, batch first) or --data NAME")
    return data.train[0][:1]


def calibration_of(flags: ModelFlags, samples: int) -> Tensor:
    """The first inputs of the data, for the ranges of integers."""
    if flags.data is None:
        raise ValueError("--integer needs inputs to set its ranges: pass --data NAME or a file")
    if samples < 1:
        raise ValueError(f"--samples is a number of inputs, 1 or more; got {samples}")
    return load_data(flags.data, flags.data_folder, 0).train[0][:samples]


def load_weights(model: nn.Module, path: Path) -> None:
    """Weights of a run, a plain safetensors file, or a packed file, into the model."""
    if not path.is_file():
        raise ValueError(f"--weights: there is no file {path}")
    if is_packed(path):
        deploy.load(path, into=model)
        return
    state = read_state(path)
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()[:40])
        raise ValueError(f"--weights {path} do not fit the model: {reason}") from error


def is_packed(path: Path) -> bool:
    """Whether a file is one of :func:`torchlift.deploy.save`."""
    with path.open("rb") as file:
        return file.read(5) == b"TLIFT"


def read_state(path: Path) -> Any:
    """The tensors by name of a safetensors file, a checkpoint or a state dict of ``torch.save``; nothing
    in it is executed."""
    if is_archive(path):
        return read_archive(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            ours = (file.metadata() or {}).get("format") == checkpoint.FORMAT
            if not ours:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"--weights: {path} is not a safetensors file, a torch.save of a state dict or a packed file"
        ) from error
    return checkpoint.load_checkpoint(path)


def is_archive(path: Path) -> bool:
    """Whether a file may be one of ``torch.save``."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def read_archive(path: Path) -> Any:
    """A state dict of ``torch.save``, or the one under ``state_dict`` or ``model`` of a checkpoint."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several kinds; what is not plain tensors is never loaded
        raise ValueError(
            f"--weights: {path} holds more than tensors: write torch.save(model.state_dict(), path)"
        ) from error
    inner = [state[key] for key in ("state_dict", "model") if isinstance(state, dict) and key in state]
    return next((entry for entry in inner if isinstance(entry, dict)), state)
