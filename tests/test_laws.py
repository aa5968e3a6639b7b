"""Every law on every row of the table."""

import pytest

import forked  # noqa: F401  (loads torch once for all processes)
from cases import case, rows
from torchlift import testing
from torchlift.testing import LAWS

COMPILED = [
    ("mask", "mlp"),
    ("expand + mask", "mlp"),
    ("auxiliary + mask", "mlp"),
    ("lifter", "conv"),
    ("mask", "vit"),
    ("templates", "stages"),
    ("precision", "mlp"),
    ("critical layer, fading", "mlp"),
]
PARALLEL = [
    ("mask", "mlp"),
    ("mask", "lstm"),
    ("lifter", "mlp"),
    ("auxiliary", "mlp"),
    ("expand + mask", "tied"),
    ("auxiliary + mask", "mlp"),
    ("lifter + mask", "vit"),
    ("templates, few", "deep tied"),
    ("precision", "mlp"),
]

NIGHTLY_MODELS = {"lstm", "attention", "tied", "vit", "mobilenet", "deep tied"}
"""In make test the mask alone meets these; other lifts a perceptron, a convolutional network, stages."""


def table() -> list[object]:
    """The rows, those that are left to make nightly marked so."""
    return [
        pytest.param(lift, model, marks=pytest.mark.nightly)
        if model in NIGHTLY_MODELS and lift != "mask"
        else pytest.param(lift, model)
        for lift, model in rows()
    ]


# torch.export says this of any nn.LSTM, lifted or not
@pytest.mark.filterwarnings("ignore:The tensor attributes self.rnn._flat_weights")
@pytest.mark.parametrize(("lift_name", "model_name"), table())
def test_laws(lift_name: str, model_name: str) -> None:
    """All of them on a row: a thousand tests of a hundredth of a second would take longer to hand out."""
    for name, law in LAWS.items():
        try:
            law(*case(lift_name, model_name))
        except Exception as error:
            error.add_note(f"the law {name}")
            raise


@pytest.mark.parametrize(("lift_name", "model_name"), COMPILED, ids=lambda name: name)
def test_compiles_once(lift_name: str, model_name: str) -> None:
    testing.compiles_once(*case(lift_name, model_name))


@pytest.mark.slow
def test_agrees_across_processes() -> None:
    testing.agrees_across_processes({f"{lift} on {model}": case(lift, model) for lift, model in PARALLEL})
