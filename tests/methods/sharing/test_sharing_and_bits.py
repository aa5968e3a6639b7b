"""Shared, then quantized: one file smaller than either alone."""

import copy
from functools import partial

import torch
from torch import nn

import torchlift as tl
from torchlift.recipes import Chain, Smol, SoftSharing


def test_a_chain_of_both_is_smaller_than_each(tmp_path) -> None:
    torch.manual_seed(0)
    blocks = [layer for _ in range(6) for layer in (nn.Linear(48, 48), nn.ReLU())]
    net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), *blocks, nn.Linear(48, 2))
    x = torch.randn(96, 8)
    data = (x, (x[:, 0] > 0).long())
    recipes = {
        "shared": SoftSharing(k=1),
        "bits": Smol(bits=2.0),
        "both": Chain({"share": SoftSharing(k=1), "bits": Smol(bits=2.0)}),
    }
    sizes = {}
    for name, recipe in recipes.items():
        sgd = partial(torch.optim.SGD, lr=0.05)
        result = tl.fit(net, data, recipe=recipe, epochs=4, batch_size=32, optimizer=sgd, progress=False)
        sizes[name] = int(tl.deploy.save(result.model, tmp_path / name))
        again = tl.deploy.load(tmp_path / name, into=copy.deepcopy(result.model))
        with torch.no_grad():
            assert torch.equal(again(x), result.model(x))
    assert sizes["both"] < min(sizes["shared"], sizes["bits"])
