"""The model a command names: a built-in one sized by the data, or what the user's factory makes."""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from torchlift import models
from torchlift.cli.imports import check_keywords, import_object
from torchlift.cli.pairs import unknown_name

Sizes = Callable[[tuple[int, ...], int], dict[str, Any]]


def mlp(inputs: int, outputs: int, hidden: Sequence[int] = (64,), flatten: bool = False) -> nn.Module:
    """Fully connected layers, the hidden ones of the given widths."""
    return models.MLP(inputs, *hidden, outputs, flatten=flatten)


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A factory, the dimensions of an input (None: any), and its sizes from the data's shape and outputs."""

    factory: Callable[..., nn.Module]
    dimensions: int | None
    sizes: Sizes


def image(shape: tuple[int, ...], outputs: int) -> dict[str, Any]:
    """Sizes of most image models."""
    return {"channels": shape[0], "classes": outputs}


BUILT_IN: dict[str, BuiltIn] = {
    "mlp": BuiltIn(mlp, None, lambda s, n: {"inputs": math.prod(s), "outputs": n, "flatten": len(s) > 1}),
    "lenet5": BuiltIn(models.LeNet5, 3, lambda s, n: {"inputs": s, "classes": n}),
    "conv6": BuiltIn(models.Conv6, 3, image),
    "resnet20": BuiltIn(functools.partial(models.ResNet, depth=20), 3, image),
    "resnet": BuiltIn(models.ResNet, 3, image),
    "wide-resnet": BuiltIn(models.WideResNet, 3, image),
    "vgg16": BuiltIn(models.VGG16, 3, image),
    "blocknet": BuiltIn(
        functools.partial(models.BlockNet, 1), 1, lambda s, n: {"inputs": s[0], "outputs": n}
    ),
    "gridnet": BuiltIn(models.GridNet, 3, lambda s, n: {"channels": s[0]}),
    "char-lstm": BuiltIn(models.CharLSTM, 1, lambda s, n: {"vocabulary": n}),
    "gpt": BuiltIn(models.GPT, 1, lambda s, n: {"vocabulary": n, "context": s[0]}),
}


def build_model(
    name: str, options: Mapping[str, Any], shape: tuple[int, ...] | None, outputs: int | None
) -> nn.Module:
    """A new model; one line on what is wrong with its name or its options."""
    if ":" in name:
        return from_factory(name, options)
    if name not in BUILT_IN:
        raise unknown_name("--model: built-in", name, [*BUILT_IN, "package.module:factory"])
    built_in = BUILT_IN[name]
    sizes: dict[str, Any] = {}
    if shape is not None and outputs is not None:
        if built_in.dimensions not in (None, len(shape)):
            raise ValueError(
                f"--model {name} takes inputs of {built_in.dimensions} dimensions, the data are {shape}"
            )
        sizes = built_in.sizes(shape, outputs)
    return call_factory(name, built_in.factory, sizes | dict(options))


def from_factory(spec: str, options: Mapping[str, Any]) -> nn.Module:
    """What a user's factory makes; a module itself is copied."""
    factory = import_object("--model", spec)
    if isinstance(factory, nn.Module):
        return copy.deepcopy(factory)
    if not callable(factory):
        raise ValueError(f"--model {spec} is a {type(factory).__name__}, not a factory of modules")
    model = call_factory(spec, factory, options)
    if not isinstance(model, nn.Module):
        raise ValueError(f"--model {spec} returned a {type(model).__name__}, not an nn.Module")
    return model


def call_factory(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """The factory's product; its complaints carry the model's name."""
    check_keywords(f"--arg for {name}", factory, options)
    try:
        return factory(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"--model {name} cannot be made: {error}") from error
