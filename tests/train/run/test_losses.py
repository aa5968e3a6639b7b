"""The loss that is trained is the user's: next tokens, numbers, and what no name stands for."""

import pytest
import torch
from torch import nn

import torchlift as tl
from any_models import any_model
from torchlift.core import Supervised
from torchlift.errors import DataError


def test_a_causal_model_predicts_the_next_token() -> None:
    """Whether labels come in a dict or are the inputs themselves, the loss is the model's own."""
    model, _ = any_model("gpt2")
    ids = torch.randint(0, 20, (48, 7))
    for data in ({"input_ids": ids, "labels": ids}, (ids, ids)):
        result = tl.fit(model, data, data, epochs=2, progress=False)
        with torch.no_grad():
            own = float(result.model(input_ids=ids, labels=ids).loss)
        assert result.scores["valid"].loss == pytest.approx(own, rel=1e-4)
        assert result.scores["valid"].metric < 0.5  # random tokens cannot be told in advance


def test_pairs_that_are_shifted_already_are_taken_as_they_are() -> None:
    model, _ = any_model("gpt2")
    ids = torch.randint(0, 20, (6, 8))
    task = tl.Task(model)
    with torch.no_grad():
        mine, own = float(task((ids[:, :-1], ids[:, 1:]))), float(model(input_ids=ids, labels=ids).loss)
    assert mine == pytest.approx(own, rel=1e-5)


def test_only_what_generates_from_left_to_right_predicts_the_next_token() -> None:
    assert not tl.Task(nn.Linear(2, 2)).loss.causal
    assert isinstance(tl.Task(any_model("bert")[0]).loss, Supervised)
    assert not tl.Task(any_model("bert")[0]).loss.causal


def test_a_model_whose_own_loss_is_another_raises_with_the_way_out() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=3,
        problem_type="multi_label_classification",
    )
    data = {"input_ids": torch.randint(1, 20, (8, 5)), "labels": torch.eye(3)[torch.arange(8) % 3]}
    with pytest.raises(DataError, match="the model's own loss"):
        tl.fit(BertForSequenceClassification(config), data, epochs=1, progress=False)
    result = tl.fit(
        BertForSequenceClassification(config),
        data,
        epochs=1,
        progress=False,
        loss=lambda model, batch: model(**batch).loss,
    )
    assert result.history[-1]["train_loss"] > 0


@pytest.mark.parametrize(
    ("outputs", "y", "what"),
    [
        (1, torch.rand(32, 1), "an output per class"),
        (1, torch.zeros(32, dtype=torch.long), "an output per class"),
        (3, torch.rand(32, 3), "sum to one"),
        (3, torch.rand(32), "sum to one"),
    ],
)
def test_targets_cross_entropy_cannot_take(outputs: int, y: torch.Tensor, what: str) -> None:
    with pytest.raises(DataError, match=what):
        tl.fit(nn.Linear(4, outputs), (torch.randn(32, 4), y), epochs=1, progress=False)


def test_rows_of_probabilities_are_targets() -> None:
    y = torch.softmax(torch.randn(32, 3), 1)
    assert tl.fit(nn.Linear(4, 3), (torch.randn(32, 4), y), epochs=1, progress=False).cost > 0
