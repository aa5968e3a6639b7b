"""The entries of learned precision for mobile networks, a generator and a translator, tiny."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from papers.savarese_thesis import (
    layer_precisions,
    precision_runs,
    smol_dcgan,
    smol_mobile,
    smol_translation,
)
from papers.savarese_thesis.precision_runs import Setting
from torchlift.data import Splits
from torchlift.models import MLP, shufflenet
from torchlift.report import reproduction_page


def tiny(*_):
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    pair = x, (x[:, 0] > 0).long()
    data = Splits(pair, pair, pair, "classification")
    return Setting("tiny", partial(MLP, 6, 8, 8, 2), data, 2.0, precision_runs.sgd(0.05, batch=8))


def test_mobile_networks_are_the_papers():
    sizes = [sum(p.numel() for p in make().parameters()) for make in smol_mobile.LARGE.values()]
    assert sizes[0] == 3_504_872 - 990 * 1281  # the paper's 3.5 M, with ten classes for a thousand


def test_groups_of_channels_are_shuffled():
    first, block = shufflenet((16,), (2,), stem=8)[1:3]
    assert first(torch.randn(2, 8, 6, 6)).shape == (2, 16, 3, 3)
    x = torch.randn(2, 16, 4, 4, requires_grad=True)
    changed = block(x)[:, 0] - x[:, 0]
    (gradient,) = torch.autograd.grad(changed.square().sum(), x)
    assert bool(gradient[:, 8:].any())  # an output of the first group depends on inputs of the second


def test_mobile_networks_with_every_method(monkeypatch, tmp_path):
    monkeypatch.setattr(smol_mobile, "setting", tiny)
    monkeypatch.setattr(smol_mobile, "SHARES", (0.5,))
    monkeypatch.setattr(smol_mobile, "THESIS", {"ShuffleNet": smol_mobile.THESIS["ShuffleNet"]})
    result = smol_mobile.run(tmp_path, seeds=1, stand_in=True)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["ShuffleNet: SMOL, 1.8"]["bits"]["mean"] <= 1.8
    assert rows["ShuffleNet: BSQ"]["thesis"] == "91.8 % at 3.4"
    assert next(tmp_path.glob("*/cells.jsonl")).read_text().count(", tuning 0.5, seed") == 2
    assert reproduction_page(result).title


def test_bits_by_layer_at_three_prices(monkeypatch, tmp_path):
    monkeypatch.setattr(layer_precisions, "setting", tiny)
    monkeypatch.setattr(layer_precisions, "PRICES", (1e-7, 1.0))
    result = layer_precisions.run(tmp_path, seeds=1, stand_in=True)
    cheap, dear = (curve["y"] for curve in result["curves"])
    assert len(cheap) == len(result["layers"]) == 3
    assert sum(cheap) > sum(dear), (cheap, dear)


def test_each_player_has_the_gradient_of_its_own_loss():
    torch.manual_seed(0)
    gan, x = smol_dcgan.Gan(1, 4), torch.randn(6, 1, 32, 32)
    twin = copy.deepcopy(gan)
    torch.manual_seed(1)
    smol_dcgan.game(gan, (x, x)).backward()
    torch.manual_seed(1)
    fakes = twin.generator(torch.randn(6, 64))
    judged = nn.functional.binary_cross_entropy_with_logits
    one, zero = torch.ones(6), torch.zeros(6)
    caught = judged(twin.discriminator(x), one) + judged(twin.discriminator(fakes.detach()), zero)
    losses = {"generator": judged(twin.discriminator(fakes), one), "discriminator": caught}
    for player, loss in losses.items():
        wanted = torch.autograd.grad(loss, list(getattr(twin, player).parameters()))
        for p, g in zip(getattr(gan, player).parameters(), wanted, strict=True):
            torch.testing.assert_close(p.grad, g, atol=1e-6, rtol=1e-4)


def test_frechet_distance_between_normal_distributions():
    one, far = torch.eye(3).double(), torch.tensor([3.0, 4.0, 0.0]).double()
    assert smol_dcgan.frechet(far, one, 0 * far, one) == pytest.approx(25.0)
    wide = torch.diag(torch.tensor([4.0, 9.0, 1.0])).double()  # (2 − 1)² + (3 − 1)² + 0
    assert smol_dcgan.frechet(far, wide, far, one) == pytest.approx(5.0)


def test_generators_in_few_bits_come_with_pictures(monkeypatch, tmp_path):
    few = {name: way for name, way in smol_dcgan.ways(False).items() if name in ("float", "SMOL*, 1")}
    images = torch.randint(0, 256, (128, 1, 28, 28), dtype=torch.uint8), torch.arange(128) % 10
    monkeypatch.setattr(smol_dcgan, "SMALL", (4, lambda _: (images, images), 128, 1.0))
    monkeypatch.setattr(smol_dcgan, "ways", lambda _: few)
    result = smol_dcgan.run(tmp_path, seeds=1, stand_in=True)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["SMOL*, 1"]["bits"]["mean"] <= 1.0
    assert rows["SMOL*, 1"]["file bytes"]["mean"] < rows["float"]["file bytes"]["mean"] / 4
    assert [picture["name"] for picture in result["images"]] == list(few)
    assert "Images" in [section.title for section in reproduction_page(result).sections]
    assert smol_dcgan.run(tmp_path, seeds=1, stand_in=True)["rows"] == result["rows"]  # read, not run


def test_a_translator_sees_the_source_and_no_later_word():
    torch.manual_seed(0)
    net = smol_translation.Translator(20, 20, 6, 8, 1, 2).eval()
    tokens = torch.randint(4, 20, (1, 12))
    later, other, padded = tokens.clone(), tokens.clone(), tokens.clone()
    later[0, 9], other[0, 2], padded[0, 4:6] = 3, 3, smol_translation.PAD
    scores, before = net(tokens), net(padded)
    torch.testing.assert_close(net(later)[:, :3], scores[:, :3])
    assert not torch.allclose(net(later)[:, 3:], scores[:, 3:])
    assert not torch.allclose(net(other)[:, 0], scores[:, 0])
    net.source.weight.data[smol_translation.PAD] += 1.0
    torch.testing.assert_close(net(padded), before)


def test_translations_are_rated_by_bleu(monkeypatch, tmp_path):
    pytest.importorskip("torchmetrics")
    lines = [(f"ein {n} da .", f"a {n} there .") for n in ("hund", "mann", "kind", "haus")] * 8
    monkeypatch.setattr(smol_translation, "multi30k", lambda _: (lines, lines[:8], lines[:8]))
    monkeypatch.setattr(smol_translation, "SMALL", (12, 12, 6, 16, 1, 3.0))
    monkeypatch.setattr(smol_translation, "BITS", (3.9,))
    task, _, _ = smol_translation.setting(False, None)
    perfect = task.data.test[0][:, 6:]
    monkeypatch.setattr(smol_translation.Translator, "translated", lambda *_: perfect)
    result = smol_translation.run(tmp_path, seeds=1, stand_in=True)
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["float"]["BLEU"]["mean"] == pytest.approx(100.0)
    assert rows["float"]["bits"]["mean"] == 32.0
    assert rows["SMOL, 3.9"]["bits"]["mean"] <= 3.9
    assert "Multi30k" in result["notes"][0]
