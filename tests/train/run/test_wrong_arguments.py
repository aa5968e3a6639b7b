"""What a new user gets wrong: one line each, with its fix."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import torchlift as tl

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def conv() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


def fit(model: nn.Module | None = None, data: Any = (X, Y), **settings: Any) -> object:
    return tl.fit(model or net(), data, **{"epochs": 1, "progress": False} | settings)


adam = torch.optim.Adam

TRAINING: dict[str, tuple[Callable[[], object], str]] = {
    "no samples in a batch": (
        partial(fit, batch_size=0),
        "batch_size is a whole number of samples, 1 or more",
    ),
    "no such device": (partial(fit, device="cuda"), "pass device='cpu'"),
    "one sample": (partial(fit, batch_size=1), "raise batch_size"),
    "an optimizer": (lambda: fit(optimizer=adam(net().parameters())), r"Pass partial\(torch.optim.Adam"),
    "its options": (
        partial(fit, optimizer=partial(adam, learning_rate=1.0)),
        "Adam cannot be made: .*learning",
    ),
    "its rate": (
        partial(fit, optimizer=partial(adam, lr=-1.0)),
        "Adam cannot be made: Invalid learning rate",
    ),
    "doubles": (partial(fit, data=(X.double(), Y)), r"x\.to\(torch\.float32\)"),
    "whole numbers": (partial(fit, data=(X.long(), Y)), r"x\.to\(torch\.float32\)"),
    "a column of labels": (partial(fit, data=(X, Y[:, None])), r"y\.squeeze\(1\)"),
    "columns of other names": (partial(fit, data={"x": X, "y": Y}), r"rename them, or pass \(x, y\)"),
    "a loss of tensors": (partial(fit, loss=nn.functional.cross_entropy), "loss=lambda model, batch"),
    "nothing to train": (lambda: fit(net().requires_grad_(False)), "no parameter to train"),
    "other validation data": (partial(fit, valid=(X[:, :3], Y)), r"valid: the model does not take .*\(3,\)"),
    "other test data": (partial(fit, test=(X[:, :3], Y)), r"test: the model does not take"),
    "epochs": (partial(fit, epochs="3"), "epochs is a positive finite number; got '3'"),
    "seed": (partial(fit, seed=1.5), r"seed is a whole number; got 1\.5"),
    "clip": (partial(fit, clip=-1.0), "above 0; got -1"),
    "save_every": (partial(fit, save_every=-1), "0 or more"),
    "precision": (partial(fit, precision="8"), "such as 'bf16-mixed'; got '8'"),
    "augment": (partial(fit, augment="flip"), r"called as augment\(x, generator\)"),
    "metric": (partial(fit, metric="accuracy"), r"metric\(problem, batch\) or metric\(predictions"),
    "per cent": (lambda: tl.auto(net(), (X, Y), (X, Y), accuracy=97, budget=1), r"such as 0\.97; got 97"),
    "bytes in words": (lambda: tl.auto(net(), (X, Y), (X, Y), bytes="50k", budget=1), "bytes is a number"),
}

prune, shrink = tl.deploy.prune, tl.deploy.shrink

DEPLOYING: dict[str, tuple[Callable[[], object], str]] = {
    "other channels": (
        lambda: shrink(conv(), IMAGES[:, :1]),
        "pass a batch as the model gets it in training",
    ),
    "no batch": (lambda: shrink(conv(), IMAGES[0]), "does not take this example"),
    "a shape": (lambda: shrink(conv(), (2, 3, 8, 8)), r"torch\.zeros\(2, 3, 8, 8\)"),
    "an array": (lambda: shrink(conv(), IMAGES.numpy()), "pass a tensor"),
    "doubles": (lambda: shrink(conv(), IMAGES.double()), r"x\.to\(torch\.float32\)"),
    "no model": (lambda: shrink("lenet", IMAGES), "takes a plain nn.Module; got a str"),
    "a task": (lambda: shrink(tl.Task(conv()), IMAGES), "pass task.model"),
    "two goals": (lambda: prune(conv(), IMAGES, 0.5, macs=9000), "one of ratio, parameters= and macs="),
    "a glob": (lambda: prune(conv(), IMAGES, {"conv*": 0.5}), "'conv\\*' matches nothing. There are: 0, 1"),
    "to skip": (lambda: prune(conv(), IMAGES, skip="head*"), "'head\\*' matches nothing"),
    "measured": (lambda: tl.deploy.measure(conv(), IMAGES[:, :1]), "does not take this example"),
    "exported": (lambda: tl.deploy.export(conv(), IMAGES[:, :1], "x.onnx"), "does not take this example"),
}


@pytest.mark.parametrize(
    ("call", "said"),
    [*TRAINING.values(), *DEPLOYING.values()],
    ids=[*(f"fit, {name}" for name in TRAINING), *(f"deploy, {name}" for name in DEPLOYING)],
)
def test_a_wrong_argument_is_one_line_that_names_the_fix(call: Callable[[], object], said: str) -> None:
    with pytest.raises(tl.TorchliftError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert re.search(said, line), line
