"""Models of transformers, projected, are stored at their entropy bound."""

import pytest
import torch
from test_codecs import bound_by_hand, projected
from torch import nn

from small_transformers import mobile, vit
from torchlift.deploy import load, save

transformers = pytest.importorskip("transformers")


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
