"""Lifts under the transformers Trainer, as its users would call it."""

import copy
import functools

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

import torchlift as tl
from torchlift.integrations.huggingface import LiftCallback, LiftedModel

ADAMW = functools.partial(torch.optim.AdamW, lr=1e-2)


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 48, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def texts(count=32):
    draw = torch.Generator().manual_seed(1)
    ids = [torch.randint(0, 48, (8,), generator=draw) for _ in range(count)]
    return [{"input_ids": one, "labels": one, "note": "a column no model takes"} for one in ids]


def train(lifted, folder, resume=None, **more):
    torch.manual_seed(2)
    options = {"max_steps": 6, "save_steps": 3, "per_device_train_batch_size": 8} | more
    args = TrainingArguments(str(folder), report_to=[], disable_tqdm=True, use_cpu=True, **options)
    trainer = Trainer(
        lifted,
        args,
        train_dataset=texts(),
        eval_dataset=texts(8),
        callbacks=[LiftCallback()],
        optimizers=(lifted.optimizer(ADAMW), None),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def mask():
    return tl.lifts.SoftMask(where="*mlp*weight", strength=1e-5)


def test_a_trainer_ends_in_a_sparse_model_that_saves_as_ever(tmp_path):
    original = gpt2()
    before = copy.deepcopy(original.state_dict())
    lifted = LiftedModel(original, mask())
    trainer = train(lifted, tmp_path)
    plain = lifted.project()
    assert type(plain) is GPT2LMHeadModel
    zeros = (plain.transformer.h[0].mlp.c_fc.weight == 0).float().mean()
    assert 0.05 < zeros < 1
    assert all(torch.equal(before[name], value) for name, value in original.state_dict().items())
    plain.save_pretrained(tmp_path / "plain")
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "plain").eval()
    ids = texts(1)[0]["input_ids"][None]
    assert torch.equal(again(ids).logits, plain(ids).logits)
    assert trainer.evaluate()["eval_loss"] > 0
    assert trainer.predict(texts(8)).predictions.shape == (8, 8, 48)


def test_the_dials_run_over_the_whole_training(tmp_path):
    lifted = LiftedModel(gpt2(), mask())
    train(lifted, tmp_path, save_strategy="no")
    dials = [module for module in lifted.modules() if isinstance(module, tl.Dial)]
    assert dials
    assert all(float(dial()) == pytest.approx(dial.end) for dial in dials)


def test_a_checkpoint_holds_each_tensor_once_and_resumes(tmp_path):
    first = LiftedModel(gpt2(), mask())
    train(first, tmp_path)
    second = LiftedModel(gpt2(), mask())
    train(second, tmp_path, resume=str(tmp_path / "checkpoint-3"))
    state, other = first.state_dict(), second.state_dict()
    assert not any("lm_head" in name for name in state), "tied to the embedding"
    for name, value in state.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-6)
    LiftedModel(gpt2(), mask()).load_state_dict(state)  # strict


def test_pruned_weights_stay_pruned(tmp_path):
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, ::2] = 0
    lifted = LiftedModel(model, mask())
    train(lifted, tmp_path, save_strategy="no", weight_decay=0.1)
    kept = lifted.project().transformer.h[0].attn.c_attn.weight
    assert (kept[:, ::2] == 0).all()
    assert (kept[:, 1::2] != 0).all()


def test_without_its_optimizer_options_a_lift_raises(tmp_path):
    args = TrainingArguments(str(tmp_path), max_steps=1, report_to=[], disable_tqdm=True, use_cpu=True)
    trainer = Trainer(LiftedModel(gpt2(), mask()), args, train_dataset=texts(), callbacks=[LiftCallback()])
    with pytest.raises(tl.TorchliftError, match=r"lifted\.optimizer"):
        trainer.train()


def test_the_callback_alone_raises(tmp_path):
    args = TrainingArguments(str(tmp_path), max_steps=1, report_to=[], disable_tqdm=True, use_cpu=True)
    trainer = Trainer(gpt2(), args, train_dataset=texts(), callbacks=[LiftCallback()])
    with pytest.raises(tl.TorchliftError, match="LiftedModel"):
        trainer.train()


def test_a_lift_that_learns_raises():
    with pytest.raises(tl.TorchliftError, match=r"tl\.fit"):
        LiftedModel(gpt2(), tl.lifts.Lifter("transformer.h.0.mlp", width=8, features=16))


def test_labels_are_found_for_classifiers_too():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=20, **sizes)).eval()
    lifted = LiftedModel(model, tl.lifts.Expand(where="*intermediate*weight")).eval()
    batch = {"input_ids": torch.arange(12).view(2, 6), "labels": torch.tensor([0, 1])}
    actual, own = lifted(**batch), model(**batch)
    assert torch.allclose(actual["loss"], own.loss, atol=1e-6)
    assert torch.allclose(actual["logits"], own.logits, atol=1e-6)
    with pytest.raises(tl.TorchliftError, match="labels"):
        lifted(input_ids=batch["input_ids"])
