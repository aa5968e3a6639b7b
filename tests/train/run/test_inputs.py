"""Ordinary things in: arrays, samples, tables, torch's losses, names. Wrong ones: one line with the fix."""

import types
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.errors import DataError, TorchliftError
from torchlift.train.run import arguments
from train.run.runs import same

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()


BYTES = (X > 0).byte().view(-1, 1, 2, 2)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def fit(train: object = (X, Y), model: nn.Module | None = None, **more: object) -> tl.Result:
    settings = {"epochs": 1, "batch_size": 16, "progress": False} | more
    return tl.fit(net() if model is None else model, train, **settings)


class Table:
    """Columns by name, as ``datasets.Dataset`` has them."""

    column_names = ("x", "label")

    def __getitem__(self, name: str) -> list[object]:
        return {"x": X.double().numpy().tolist(), "label": Y.tolist()}[name]

    def __len__(self) -> int:
        return len(X)


class Named(nn.Module):
    """A model that takes its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


SAME = {
    "numpy": (X.double().numpy(), Y.numpy().astype(np.int32)),
    "pairs": list(zip(X, Y, strict=True)),
    "a list of two": [X, Y],
}


@pytest.mark.parametrize("name", SAME)
def test_arrays_and_samples_train_as_tensors_do(name: str) -> None:
    assert same(fit(SAME[name]).model, fit().model)


def test_dicts_lists_of_dicts_and_tables_are_the_same_data() -> None:
    rows = [{"x": x.numpy(), "label": int(y)} for x, y in zip(X, Y, strict=True)]
    expected = fit({"x": X, "label": Y}, Named())
    for samples in (rows, Table(), {"x": X.numpy(), "label": Y.numpy()}):
        assert same(fit(samples, Named()).model, expected.model)


def test_number_types_are_those_torch_computes_with() -> None:
    kinds = {"f": np.float64, "i": np.int16, "u": np.uint8}
    columns = {name: np.ones((40, 4), kind) for name, kind in kinds.items()}
    seen: list[torch.dtype] = []

    def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen[:] = [column.dtype for column in batch.values()]
        return model(batch["f"]).mean()

    fit(columns | {"h": X.half()}, loss=loss)
    assert seen == [torch.float32, torch.int64, torch.uint8, torch.float16]


def test_columns_that_are_no_numbers_are_named() -> None:
    with pytest.raises(DataError, match="column 'words' holds text: leave it out, or turn it into numbers"):
        fit([{"x": [1.0] * 4, "words": "a b", "label": 0}] * 4, Named())
    with pytest.raises(DataError, match="column 'x' has rows of different lengths: pad them"):
        fit([{"x": [1.0] * (2 + k), "label": 0} for k in range(4)], Named())
    with pytest.raises(DataError, match="sample 1 has the keys"):
        fit([{"x": [1.0] * 4, "label": 0}, {"x": [1.0] * 4}], Named())


def test_a_loss_of_torch_is_minimized_as_given(tmp_path) -> None:
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1)
    result = fit(valid=(X, Y), loss=smoothed, out=tmp_path)
    with torch.no_grad():
        assert result.scores["valid"].loss == pytest.approx(float(smoothed(result.model(X), Y)), rel=1e-5)
    assert result.metric == "accuracy"
    own = fit(valid=(X, Y), loss=lambda model, batch: smoothed(model(batch[0]), batch[1]))
    assert same(result.model, own.model)
    with pytest.raises(TorchliftError, match=r"was made with settings\.loss"):
        fit(valid=(X, Y), loss=nn.CrossEntropyLoss(label_smoothing=0.2), out=tmp_path, resume=True)
    with pytest.raises(TorchliftError, match="pass it yourself"):
        arguments(tmp_path)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), "needs reduction='mean'"),
        (nn.CTCLoss(), "CTCLoss is none of CrossEntropyLoss"),
        (nn.MSELoss, r"takes an instance: loss=nn\.MSELoss\(\)"),
        ("crossentropy", "loss 'crossentropy' is not known"),
        ("model", "loss='model' calls model"),
    ],
)
def test_losses_that_will_not_do(loss: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(loss=loss)


def test_a_recipe_that_reads_the_loss_by_name_does_not_drop_its_options() -> None:
    with pytest.raises(TorchliftError, match="needs loss="):
        fit(recipe="lifted-init", loss=nn.CrossEntropyLoss(label_smoothing=0.1))


def test_a_models_own_loss() -> None:
    class Own(Named):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> types.SimpleNamespace:
            logits = self.body(x)
            loss = None if labels is None else nn.functional.cross_entropy(logits, labels) + 1
            return types.SimpleNamespace(loss=loss, logits=logits)

    data = {"x": X, "labels": Y}
    with pytest.raises(DataError, match="pass loss='model' to train by its own"):
        fit(data, Own())
    result = fit(data, Own(), valid=data, loss="model")
    assert result.scores["valid"].loss > 1
    with pytest.raises(DataError, match="returned no loss"):
        fit({"x": X}, Own(), loss="model")


def test_recipes_and_optimizers_by_name() -> None:
    assert same(fit(recipe="smol").model, fit(recipe=tl.recipes.Smol()).model)
    assert same(fit(recipe="Normalize").model, fit(recipe=tl.lifts.Normalize()).model)
    assert same(fit(optimizer="adam").model, fit(optimizer=torch.optim.Adam).model)
    assert same(fit(optimizer="SGD").model, fit(optimizer=torch.optim.SGD).model)
    with pytest.raises(TorchliftError, match=r"(?=.*\bsgd\b)(?=.*\badamw\b)(?=.*\bmuon\b)(?=.*\bavagrad\b)"):
        fit(optimizer="?")
    with pytest.raises(TorchliftError, match=r"\bsparsify\b"):
        fit(recipe="?")


WRONG = {
    "unknown recipe": (
        {"recipe": "smoll"},
        r"recipe 'smoll' is not known; did you mean 'smol'\? there are",
    ),
    "a class": ({"recipe": tl.recipes.Smol}, r"a recipe is an instance: recipe=Smol\(…\)"),
    "needs more": ({"recipe": "neural-lifting"}, r"has no default for where: pass NeuralLifting\(where=…\)"),
    "not for this model": (
        {"recipe": "layer-pruning", "model": nn.Linear(4, 2)},
        "LayerPruning is not for this",
    ),
    "unknown optimizer": ({"optimizer": "adamm"}, r"optimizer 'adamm' is not known; did you mean 'adam"),
    "an instance": (
        {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)},
        r"not an instance: .* Pass partial\(torch\.optim\.SGD, lr=0\.3\)",
    ),
    "a number": ({"optimizer": 0.1}, "a name or a factory"),
    "batch size": ({"batch_size": 0}, "batch_size is a whole number of samples, 1 or more; got 0"),
    "half a sample": ({"batch_size": 2.5}, "batch_size is a whole number"),
    "no such device": ({"device": "cpuu"}, r"device 'cpuu' cannot be used \(.*\): pass device='cpu'"),
    "float64": (
        {"train": (X.double(), Y)},
        r"they are torch\.float64, its weights torch\.float32: convert",
    ),
    "bytes": (
        {
            "train": (BYTES, Y),
            "model": nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten()),
        },
        r"they are torch\.uint8, its weights torch\.float32",
    ),
    "one sample": (
        {"batch_size": 1, "model": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))},
        "batch normalization cannot train on one sample: raise batch_size",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_one_line_that_names_the_fix(name: str, tmp_path) -> None:
    wrong, message = WRONG[name]
    with pytest.raises(TorchliftError, match=message) as caught:
        fit(out=tmp_path / "run", **wrong)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(TorchliftError, match=r"device 'cuda' cannot be used \(.*\): pass device='cpu'"):
        fit(device="cuda")


def test_shrink_with_a_wrong_example_says_so() -> None:
    with pytest.raises(TorchliftError) as caught:
        tl.deploy.shrink(net(), torch.randn(1, 7))
    assert "\n" not in str(caught.value)


def test_partial_factories_keep_their_options() -> None:
    quarter, whole = (
        fit(optimizer=partial(torch.optim.SGD, lr=lr), batch_size=40).model for lr in (0.25, 1.0)
    )
    for start, one, two in zip(net().parameters(), quarter.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(4 * (one - start), two - start)
