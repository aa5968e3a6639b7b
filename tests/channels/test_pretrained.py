# ruff: noqa: C408
"""Cut models of Hugging Face: the config says the new widths, or a line says why not."""

import logging

import pytest
import torch

import torchlift as tl

transformers = pytest.importorskip("transformers")

IDS = torch.randint(3, 40, (2, 8), generator=torch.Generator().manual_seed(0))
SIZES = dict(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=32,
)  # fmt: skip
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "BertForSequenceClassification": (SIZES, IDS),
    "RobertaForMaskedLM": (SIZES | TOKENS, IDS),
    "DistilBertForSequenceClassification": (
        dict(vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32), IDS,
    ),
    "ViTForImageClassification": (SIZES | dict(image_size=16, patch_size=8), torch.randn(2, 3, 16, 16)),
    "GPT2LMHeadModel": (
        dict(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False, **TOKENS), IDS,
    ),
    "LlamaForCausalLM": (SIZES | dict(num_key_value_heads=2, use_cache=False), IDS),
    "Qwen2ForCausalLM": (SIZES | dict(num_key_value_heads=2, use_cache=False), IDS),
    "T5ForConditionalGeneration": (
        dict(vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False),
        dict(input_ids=IDS, decoder_input_ids=IDS),
    ),
    "WhisperForConditionalGeneration": (
        dict(
            vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16,
            max_source_positions=20, max_target_positions=16, use_cache=False, decoder_start_token_id=1,
            **TOKENS,
        ),
        dict(input_features=torch.randn(2, 16, 40), decoder_input_ids=IDS),
    ),
}  # fmt: skip
EXACT = {"LlamaForCausalLM", "Qwen2ForCausalLM", "T5ForConditionalGeneration"}


def built(name):
    torch.manual_seed(0)
    fields, x = MODELS[name]
    kind = getattr(transformers, name)
    return kind(kind.config_class(**fields)).eval(), x


@torch.no_grad()
def logits(model, x):
    return (model(**x) if isinstance(x, dict) else model(x)).logits


@pytest.mark.parametrize("name", MODELS)
def test_a_pruned_model_comes_back_from_pretrained(name, tmp_path):
    model, x = built(name)
    before = model.config.to_dict()
    small = tl.deploy.prune(model, x, 0.5, exact=name in EXACT)
    small.save_pretrained(tmp_path)
    back = type(model).from_pretrained(tmp_path).eval()
    assert small.num_parameters() < 0.45 * model.num_parameters()
    torch.testing.assert_close(logits(back, x), logits(small, x), rtol=0, atol=1e-6)
    assert model.config.to_dict() == before


def test_a_model_that_is_shrunk_comes_back_too(tmp_path):
    model, x = built("BertForSequenceClassification")
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.intermediate.dense.weight[40:] = 0
            layer.intermediate.dense.bias[40:] = 0
    small = tl.deploy.shrink(model, x)
    small.save_pretrained(tmp_path)
    back = type(model).from_pretrained(tmp_path).eval()
    assert (back.config.intermediate_size, back.config.hidden_size) == (40, 32)
    torch.testing.assert_close(logits(back, x), logits(model, x))


def test_a_model_cut_by_a_run_comes_back_too(tmp_path):
    model, x = built("BertForSequenceClassification")
    data = (x, torch.arange(len(x)) % 2)
    recipe = tl.recipes.ChannelPruning(ratio=0.5, exact=False)
    small = tl.fit(model, data, epochs=2, recipe=recipe, progress=False).model.eval()
    small.save_pretrained(tmp_path)
    back = type(model).from_pretrained(tmp_path).eval()
    assert small.num_parameters() < 0.45 * model.num_parameters()
    torch.testing.assert_close(logits(back, x), logits(small, x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (dict(ratio=0.5), "exact=False"),
        (dict(ratio={"*layer.0.intermediate*": 0.5}), "intermediate_size is one number"),
        (dict(ratio={"*query": 0.5}, exact=False), "whole heads of both"),
    ],
)
def test_where_no_config_can_say_it_one_line_does_and_the_packed_file_works(options, why, tmp_path, caplog):
    model, x = built("BertForSequenceClassification")
    with caplog.at_level(logging.WARNING, "torchlift"):
        small = tl.deploy.prune(model, x, **options)
    (line,) = [r.getMessage() for r in caplog.records if "config" in r.getMessage()]
    assert why in line
    assert "tl.deploy.load(path, into=" in line
    assert small.config.to_dict() == model.config.to_dict()
    tl.deploy.save(small, tmp_path / "model.tl")
    back = tl.deploy.load(tmp_path / "model.tl", into=type(model)(model.config)).eval()
    torch.testing.assert_close(logits(back, x), logits(small, x))


def test_a_family_that_is_not_known_is_named(caplog):
    config = transformers.OPTConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, ffn_dim=64, num_attention_heads=4,
        max_position_embeddings=32, word_embed_proj_dim=32, use_cache=False, **TOKENS,
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "torchlift"):
        tl.deploy.prune(transformers.OPTForCausalLM(config).eval(), IDS, {"*fc1": 0.5})
    assert "its config (opt)" in caplog.text
