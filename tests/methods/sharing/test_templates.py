"""Soft sharing: templates, coefficients, similarity, groups."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from torchlift.core import groups, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Templates, templates

ALPHA = torch.tensor(
    [
        [0.8, 0.1, -1.2, 0.2, -0.4],
        [-0.2, 0.6, 0.3, 1.2, -0.3],
        [0.6, -0.2, -0.9, -0.4, 0.7],
        [0.2, 1.2, -0.3, 2.4, -0.1],
    ],
    dtype=torch.float64,
)
"""Eq. 3.15: columns are layers."""

SETS = [[0, 2], [1, 3], [4]]


def banks(problem):
    """The groups of a lifted problem: the one that registers its templates, by name."""
    return {node.group: node for _, node in nodes(problem) if hasattr(node, "templates")}


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_worked_example_layers_alike():
    """Eq. 3.16: printed to two decimals, cut off, not rounded."""
    printed = torch.tensor(
        [
            [1, 0.05, 1, 0.05, 0.15],
            [0.05, 1, 0.05, 1, 0.40],
            [1, 0.05, 1, 0.05, 0.15],
            [0.05, 1, 0.05, 1, 0.40],
            [0.15, 0.40, 0.15, 0.40, 1],
        ],
        dtype=torch.float64,
    )
    actual = templates.similarity(ALPHA.T)
    assert torch.equal((100 * actual + 1e-9).floor() / 100, printed)
    assert templates.similar_sets(ALPHA.T, 1.0) == SETS
    assert templates.similar_sets(ALPHA.T, 0.4) == [[0, 2], [1, 3, 4]]


def test_the_worked_example_reparameterized():
    """Eqs. 3.17 and 3.18; the third row of B is (−0.4, −0.3, 0.7, −0.1), not with the printed +0.3."""
    new, turn = templates.reparameterize(ALPHA, SETS)
    want = torch.tensor([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]], dtype=torch.float64)
    rows = [[-0.2, 0.05, -0.15, -0.05], [0.15, 0.9, -0.3, 1.8], [-0.4, -0.3, 0.7, -0.1]]
    assert torch.equal(new, want)
    torch.testing.assert_close(turn, torch.tensor(rows, dtype=torch.float64))


def test_with_scales_the_worked_example_keeps_every_weight():
    """α⁽³⁾ = −1.5 α⁽¹⁾ and α⁽⁴⁾ = 2 α⁽²⁾: the source's α′ loses lengths and signs, scales keep them."""
    bank = drawn(0, 4, 3, 2)
    scales = torch.tensor([1, 1, -1.5, 2, 1], dtype=torch.float64)
    kept, new = tl.lifts.reparameterize(ALPHA, bank, SETS, scales)
    assert new.shape == (3, 3, 2)
    torch.testing.assert_close(templates.mix(new, kept.T), templates.mix(bank, ALPHA.T))
    lost, few = tl.lifts.reparameterize(ALPHA, bank, SETS)
    difference = templates.mix(few, lost.T) - templates.mix(bank, ALPHA.T)
    assert [bool(d.abs().max() < 1e-12) for d in difference] == [False, False, False, False, True]


def test_an_invertible_turn_changes_nothing():
    """Proposition 3.1 with as many sets as templates and a set for each layer: B = αᵀ exactly, W kept."""
    alpha, bank = drawn(1, 4, 4), drawn(2, 4, 5)
    new, actual = tl.lifts.reparameterize(alpha, bank, [[0], [1], [2], [3]])
    torch.testing.assert_close(templates.mix(actual, new.T), templates.mix(bank, alpha.T))


def test_sets_must_hold_each_layer_once():
    with pytest.raises(TorchliftError, match="each of 5 layers once"):
        templates.reparameterize(ALPHA, [[0, 2], [1, 3]])


def test_mixing_is_the_sum_it_says():
    bank, alpha = drawn(3, 3, 2, 4), drawn(4, 5, 3)
    slow = torch.stack([sum(alpha[layer, i] * bank[i] for i in range(3)) for layer in range(5)])
    torch.testing.assert_close(templates.mix(bank, alpha), slow)
    torch.testing.assert_close(templates.mix(bank, alpha[2]), slow[2])


def test_gradients_of_templates_and_coefficients():
    """∂f/∂T⁽ⁱ⁾ = Σ_l αᵢ⁽ˡ⁾ G⁽ˡ⁾ and ∂f/∂αᵢ⁽ˡ⁾ = ⟨G⁽ˡ⁾, T⁽ⁱ⁾⟩ for G⁽ˡ⁾ = ∂f/∂W⁽ˡ⁾."""
    bank, alpha, g = drawn(5, 3, 2, 4).requires_grad_(), drawn(6, 5, 3).requires_grad_(), drawn(7, 5, 2, 4)
    (g * templates.mix(bank, alpha)).sum().backward()
    torch.testing.assert_close(bank.grad, torch.einsum("li,lab->iab", alpha.detach(), g))
    torch.testing.assert_close(alpha.grad, torch.einsum("lab,iab->li", g, bank.detach()))


def test_the_recurrence_regularizer():
    """−Σ S: −layers² at best, and its gradient agrees with differences."""
    assert float(templates.recurrence(torch.ones(4, 3))) == pytest.approx(-16)
    assert float(templates.recurrence(torch.eye(4))) == pytest.approx(-4)
    assert torch.autograd.gradcheck(templates.recurrence, drawn(8, 4, 3).requires_grad_())


def test_a_layer_without_coefficients_is_like_none():
    assert torch.equal(
        templates.similarity(torch.tensor([[1.0, 0.0], [0.0, 0.0]])),
        torch.diag(torch.tensor([1.0, 0])),
    )


@settings(deadline=None, max_examples=30)
@given(layers=st.integers(2, 6), k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_the_start_is_the_best_of_its_rank(layers, k, seed):
    """Eckart and Young: lost is the energy of the smallest singular values; α is orthogonal."""
    weights = drawn(seed, layers, 3, 4)
    bank, alpha = templates.factorize(weights, k)
    assert bank.shape == (k, 3, 4)
    lost = (templates.mix(bank, alpha) - weights).square().sum()
    torch.testing.assert_close(lost, torch.linalg.svdvals(weights.flatten(1))[k:].square().sum())
    gram = alpha @ alpha.T if k >= layers else alpha.T @ alpha
    torch.testing.assert_close(gram, torch.eye(min(k, layers), dtype=torch.float64))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), threshold=st.floats(0, 1))
def test_sets_of_layers(seed, threshold):
    """Within a set all pairs reach the threshold; lower thresholds join sets; every join has a level."""
    alpha = drawn(seed, 6, 2)
    likeness = templates.similarity(alpha)
    sets = templates.similar_sets(alpha, threshold)
    assert sorted(layer for one in sets for layer in one) == list(range(6))
    assert all(float(likeness[i, j]) >= threshold - 1e-12 for one in sets for i in one for j in one if i != j)
    finer = templates.similar_sets(alpha, min(1.0, threshold + 0.1))
    assert all(any(set(one) <= set(other) for other in sets) for one in finer)
    levels = templates.joins(alpha)
    assert len(levels) == 5
    assert all(len(templates.similar_sets(alpha, level)) <= 5 - n for n, level in enumerate(levels))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), layers=st.integers(2, 7))
def test_joining_is_complete_linkage(seed, layers):
    from scipy.cluster.hierarchy import linkage

    alpha = drawn(seed, layers, 3)
    likeness = templates.similarity(alpha)
    pairs = torch.triu_indices(layers, layers, 1)
    theirs = linkage((1 - likeness[pairs[0], pairs[1]]).numpy(), "complete")[:, 2]
    assert templates.joins(alpha) == pytest.approx((1 - theirs).tolist())


def test_the_best_weight_for_all_is_the_best_of_rank_one():
    weights = drawn(9, 4, 3, 5)
    shared, scales, owner = templates.one_for_all(weights)
    lost = (scales.view(-1, 1, 1) * shared - weights).square().sum()
    torch.testing.assert_close(lost, torch.linalg.svdvals(weights.flatten(1))[1:].square().sum())
    assert float(scales[owner]) == pytest.approx(1.0)
    assert float(scales.abs().max()) == pytest.approx(1.0)


@pytest.mark.parametrize("k", [6, 9, None])
def test_with_enough_templates_training_starts_at_the_given_weights(k):
    task = tl.Task(tl.models.GridNet(6, 4).eval(), "bce").eval()
    x = torch.randn(2, 2, 6, 6)
    torch.testing.assert_close(Templates(k).lift(task).predict(x), task.predict(x), atol=1e-5, rtol=1e-5)


def test_a_trained_group_of_low_rank_starts_exactly():
    """Sharing tried on a trained network: weights that are mixtures of two templates need no third."""
    model = tl.models.GridNet(5, 3)
    bank, alpha = torch.randn(2, 3, 3, 3, 3), torch.randn(5, 2)
    for block, weight in zip(model.blocks, templates.mix(bank, alpha), strict=True):
        block.conv.weight = nn.Parameter(weight)
    task = tl.Task(model, "bce").eval()
    x = torch.randn(2, 2, 6, 6)
    torch.testing.assert_close(Templates(2).lift(task).predict(x), task.predict(x), atol=1e-5, rtol=1e-5)


def test_a_group_has_one_bank_without_decay_on_its_coefficients():
    lifted = Templates(k=2).lift(tl.Task(tl.models.GridNet(5, 3), "bce"))
    names = [name for name, _ in lifted.named_parameters() if name.endswith(("templates", "alpha"))]
    assert len(names) == 2
    assert sum(1 for name in lifted.state_dict() if name.endswith("templates")) == 1
    (bank,) = banks(lifted).values()
    assert (bank.templates.shape, bank.alpha.shape) == ((2, 3, 3, 3, 3), (5, 2))
    spared = [g["params"] for g in groups(lifted, {"*": {"weight_decay": 0.1}}) if not g["weight_decay"]]
    assert [[p is bank.alpha for p in parameters] for parameters in spared] == [[True]]


def test_the_regularizer_counts_once():
    task = tl.Task(tl.models.GridNet(5, 3), "bce")
    lifted = Templates(k=2, recurrence=0.5).lift(task)
    (bank,) = banks(lifted).values()
    torch.testing.assert_close(lifted.penalty(), 0.5 * templates.recurrence(bank.alpha))


def test_the_regularizer_makes_layers_alike():
    lifted = Templates(k=4, recurrence=0.1).lift(tl.Task(tl.models.GridNet(4, 3), "bce"))
    (bank,) = banks(lifted).values()
    optimizer = torch.optim.Adam([bank.alpha], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        lifted.penalty().backward()
        optimizer.step()
    assert float(tl.analyze.similarity(lifted)["blocks"].min()) > 0.99


def sizes(model, where="*weight"):
    lifted = Templates(k=1, where=where).lift(tl.Task(model, "cross_entropy"))
    return {name: len(bank.layers) for name, bank in banks(lifted).items()}


def test_groups_of_a_wide_resnet_are_its_stages_without_their_first_blocks():
    """Thesis, section 3.3.2: (L − 10) / 3 convolutions in each of three groups."""
    assert sizes(tl.models.WideResNet(28, 2)) == {"stage1": 6, "stage2": 6, "stage3": 6}
    named = Templates(k=1, groups=tl.models.SHARED).lift(
        tl.Task(tl.models.WideResNet(28, 2), "cross_entropy")
    )
    actual = Templates(k=1).lift(tl.Task(tl.models.WideResNet(28, 2), "cross_entropy"))
    assert {n: b.layers for n, b in banks(named).items()} == {n: b.layers for n, b in banks(actual).items()}


def test_groups_of_transformers_are_their_projections():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=24, image_size=8, patch_size=4,
    )  # fmt: skip
    assert sorted(sizes(ViTForImageClassification(config)).values()) == [3, 3, 12]
    gpt = sizes(tl.models.GPT(11, context=8, width=16, depth=3, heads=2))
    assert gpt == {f"blocks {shape}": 3 for shape in ("48x16", "16x16", "64x16", "16x64")}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 4, enable_nested_tensor=False
    )
    assert sizes(encoder) == {f"layers {shape}": 4 for shape in ("24x8", "8x8", "12x8", "8x12")}


def test_groups_by_name():
    task = tl.Task(tl.models.GridNet(6, 3), "bce")
    halves = {"first": ["blocks.[012].*"], "second": ["blocks.[345].*"]}
    lifted = Templates(k=1, groups=halves).lift(task)
    assert {name: len(bank.layers) for name, bank in banks(lifted).items()} == {"first": 3, "second": 3}


@pytest.mark.parametrize(
    ("lift", "words"),
    [
        (Templates(groups={"a": ["blocks.0.*"]}), "needs two weights or more"),
        (Templates(groups={"a": ["*weight"]}), "differ in shape"),
        (Templates(groups={"a": ["blocks*weight"], "b": ["blocks.1.*", "blocks.2.*"]}), "is in two groups"),
        (Templates(where="stem.weight"), "no weight to lift"),
        (Templates(where="nothing"), "matches nothing"),
    ],
)
def test_what_cannot_be_grouped_is_said(lift, words):
    with pytest.raises(TorchliftError, match=words):
        lift.lift(tl.Task(tl.models.GridNet(4, 3), "bce"))
    assert words in (lift.accepts(tl.Task(tl.models.GridNet(4, 3), "bce")) or "")


@pytest.mark.parametrize("options", [{"k": 0}, {"fold": 1.5}, {"store": "files"}, {"groups": "stages"}])
def test_settings_without_sense_raise(options):
    with pytest.raises(TorchliftError):
        Templates(**options)


def test_similarity_needs_layers_that_share():
    with pytest.raises(TorchliftError, match="no layers share"):
        tl.analyze.similarity(tl.Task(nn.Linear(2, 2), "mse"))
