"""A model and an example input, as ``measure`` and ``export`` name them."""

from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from torchlift import deploy
from torchlift.cli.datasets import Data, load_data
from torchlift.cli.flags import ModelFlags
from torchlift.cli.models import build_model
from torchlift.cli.pairs import parse_pairs
from torchlift.train import checkpoint


def open_model(flags: ModelFlags) -> tuple[nn.Module, Tensor]:
    """The model with its weights, and an example of one sample."""
    data = None if flags.data is None else load_data(flags.data, flags.data_folder, 0)
    example = parse_example(flags.example) if flags.example else example_of(data)
    model = make_model(flags, data, example)
    if flags.weights and flags.model:
        load_weights(model, Path(flags.weights))
    return model.eval(), example


def make_model(flags: ModelFlags, data: Data | None, example: Tensor) -> nn.Module:
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


def example_of(data: Data | None) -> Tensor:
    """The first sample of the data."""
    if data is None or data.shape is None:
        raise ValueError("no example input: pass --example 1,3,32,32 (a shape, batch first) or --data NAME")
    return data.train[0][:1]


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
    """The tensors of a safetensors file or a checkpoint by their names; nothing in it is executed."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            ours = (file.metadata() or {}).get("format") == checkpoint.FORMAT
            if not ours:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except safetensors.SafetensorError as error:
        raise ValueError(f"--weights: {path} is neither a safetensors nor a packed file") from error
    return checkpoint.load(path)
