"""Models of transformers, projected, are stored at their entropy bound."""

import pytest
import torch
from test_codecs import bound_by_hand, projected
from torch import nn

from torchlift.deploy import load, save

transformers = pytest.importorskip("transformers")


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, image_size=16,
        patch_size=8, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def mobile() -> nn.Module:
    config = transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.25, num_labels=3)
    return transformers.MobileNetV2ForImageClassification(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=300, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize(("make", "how"), [(vit, "mixed"), (mobile, "both"), (gpt2, "both")])
def test_projected_transformers_are_at_their_entropy_bound(make, how, tmp_path):
    torch.manual_seed(0)
    model = projected(make(), how)
    coded, raw = bound_by_hand(model)
    assert save(model, tmp_path / "m.tl") <= 1.02 * coded + 2048 + raw
    again = load(tmp_path / "m.tl").state_dict()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())
