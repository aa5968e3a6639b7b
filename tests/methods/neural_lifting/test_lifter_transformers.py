"""Lifters on models that are not in the package: transformers with random weights."""

import pytest
import torch
from torch.testing import assert_close

from torchlift.core import Task, anneal, nodes
from torchlift.lifts import Expand, Lifter, Normalize

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def bert():
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=20, num_labels=3, **SMALL)
    return transformers.BertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(vocab_size=30, n_positions=20, n_embd=16, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(vocab_size=30, num_key_value_heads=2, **SMALL)
    return transformers.LlamaForCausalLM(config)


def resnet():
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    config.layer_type = "basic"
    return transformers.ResNetForImageClassification(config)


def loss(model, batch):
    return model(**batch).loss


def tokens(labels):
    ids = torch.randint(30, (4, 7))
    return {"input_ids": ids, "labels": ids if labels == "next" else torch.randint(3, (4,))}


CASES = {
    "bert encoder layers": (bert, "bert.encoder.layer.?", {}, lambda: tokens("class")),
    "bert pooler": (bert, "bert.pooler", {}, lambda: tokens("class")),
    "bert encoder, by name": (
        bert,
        "bert.encoder",
        {"index": "last_hidden_state"},
        lambda: tokens("class"),
    ),
    "gpt2 blocks": (gpt2, "transformer.h.?", {}, lambda: tokens("next")),
    "gpt2 attention": (gpt2, "transformer.h.*.attn", {"index": 0}, lambda: tokens("next")),
    "llama layers": (llama, "model.layers.?", {}, lambda: tokens("next")),
    "llama logits": (llama, "lm_head", {"match": "kl"}, lambda: tokens("next")),
    "resnet stage": (
        resnet,
        "resnet.encoder.stages.0",
        {"kind": "conv"},
        lambda: {"pixel_values": torch.randn(4, 3, 32, 32), "labels": torch.randint(3, (4,))},
    ),
}


def fitted(batch):
    def fit(problem, **settings):
        problem.train()
        optimizer = torch.optim.SGD([p for p in problem.parameters() if p.requires_grad], 0.05)
        for _ in range(2):
            optimizer.zero_grad()
            problem(batch).backward()
            optimizer.step()
        problem.eval()

    return fit


def logits(task, batch):
    with torch.no_grad():
        return task.model(**{k: v for k, v in batch.items() if k != "labels"}).logits


@pytest.mark.parametrize("case", CASES)
def test_identity_at_first_and_the_base_architecture_in_the_end(case):
    make, where, options, sample = CASES[case]
    torch.manual_seed(0)
    task, batch = Task(make(), loss).eval(), sample()
    lift = Lifter(where, **options)
    lifted = lift.lift(task)
    assert_close(logits(lifted, batch), logits(task, batch), rtol=0, atol=1e-6)
    fitted(batch)(lifted)
    assert (logits(lifted, batch) - logits(task, batch)).abs().max() > 1e-4
    small = lift.project(lifted, fitted(batch))
    assert [(n, type(m)) for n, m in small.named_modules()] == [(n, type(m)) for n, m in task.named_modules()]
    before, after = task.state_dict(), small.state_dict()
    assert [(name, value.shape) for name, value in before.items()] == [(n, v.shape) for n, v in after.items()]
    count = sum(p.numel() for p in task.parameters())
    assert sum(p.numel() for p in small.parameters()) == count
    assert not list(nodes(small))
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in small.modules())


@pytest.mark.parametrize(
    "lift",
    [
        Lifter("*output.dense", kind="linear", init="xavier"),
        Lifter("*output.dense", kind="fading"),
        Expand("*dense.weight", side="both"),
        Normalize("*intermediate.dense"),
    ],
    ids=repr,
)
def test_merging_lifts_come_back_exactly(lift):
    torch.manual_seed(0)
    task, batch = Task(bert().double(), loss).eval(), tokens("class")
    lifted = lift.lift(task)
    for parameter in lifted.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    anneal(lifted, 1.0)
    merged = lift.project(lifted)
    x = {k: v for k, v in batch.items() if k != "labels"}
    with torch.no_grad():
        assert_close(merged.predict(x).logits, lifted.predict(x).logits, rtol=1e-9, atol=1e-9)
    assert list(merged.state_dict()) == list(task.state_dict())
