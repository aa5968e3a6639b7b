"""Headers from a dictionary that never changes."""

import hashlib
import json
import zlib

import pytest
import torch
from torch import nn

from forging import inflated, reheaded
from torchlift.models import LeNet5
from torchlift.packed.budget import PackedError
from torchlift.packed.dictionary import DICTIONARY
from torchlift.packed.file import described, packed
from torchlift.packed.sealing import seal
from torchlift.packed.unpacking import FRONT, HEADER, unpacked

DIGEST = "895fcf60bfe52ea461725ff9c505ddfc08e473975aaef49b4696c2aaa908ed35"


def test_the_dictionary_never_changes():
    """Files of the third coder can be read with these bytes alone: a new text needs a new version."""
    assert hashlib.sha256(DICTIONARY).hexdigest() == DIGEST


def test_headers_are_small():
    header, _ = described(LeNet5())
    assert len(header) < 150
    text = inflated(packed(LeNet5()))
    assert len(text) > 2000
    assert len(zlib.compress(text, 9)) > 400


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(3, 4), nn.Conv2d(3, 4, 5), nn.Conv1d(3, 4, 5), nn.ConvTranspose2d(3, 4, 4), nn.Dropout(0.1),
        nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.LayerNorm(3), nn.GroupNorm(2, 4), nn.ReLU(), nn.GELU(),
        nn.SiLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Embedding(5, 4), nn.LSTM(3, 4), nn.MultiheadAttention(8, 2), nn.Sequential(), nn.ModuleList(),
        nn.Identity(),
    ],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_it_has_the_text_of_common_layers(layer, training):
    """A little room for attributes that torch may add."""
    header, _ = described(layer.train(training))
    assert len(header) < 100


def test_headers_without_it_are_read_too_and_older_files_have_none():
    model = nn.Linear(2, 3)
    data = packed(model)
    plain = zlib.compress(inflated(data))
    assert torch.equal(unpacked(reheaded(data, plain)).weight, model.weight)
    for coder, header in ((2, data[FRONT.size :][: FRONT.unpack_from(data)[4]]), (2, plain), (4, plain)):
        changed = bytearray(reheaded(data, header)[:-32])
        changed[8] = coder
        whole = bytes(changed) + seal(bytes(changed), None)
        if (coder, header) == (2, plain):
            assert torch.equal(unpacked(whole).weight, model.weight)
        else:
            with pytest.raises(PackedError, match=r"header is damaged|version 4"):
                unpacked(whole)


def test_other_dictionaries_and_bombs_are_refused():
    data = packed(nn.Linear(2, 3))
    engine = zlib.compressobj(zdict=b"another")
    other = engine.compress(json.dumps({}).encode()) + engine.flush()
    with pytest.raises(PackedError, match="damaged"):
        unpacked(reheaded(data, other))
    engine = zlib.compressobj(9, zdict=DICTIONARY)
    bomb = engine.compress(b"[" * (HEADER + 10)) + engine.flush()
    with pytest.raises(PackedError, match="header is larger"):
        unpacked(reheaded(data, bomb))
