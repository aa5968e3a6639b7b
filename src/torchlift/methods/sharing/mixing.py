"""Soft sharing as tensor functions: templates, coefficients, similarity, reparameterization.

Savarese and Maire (2019); Savarese, thesis, chapter 3. A group of layers has templates T, k × shape, and
coefficients α, layers × k: rows are layers. (:func:`reparameterize` has columns, as its source does.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from torchlift.errors import TorchliftError

PARALLEL = 1e-12
"""How far below a threshold a similarity may fall by rounding, in double precision."""

NEVER, GONE = 2.0, -1.0
"""A threshold that no similarity reaches, and what is below every similarity."""


def mix(templates: Tensor, alpha: Tensor) -> Tensor:
    """W⁽ˡ⁾ = Σᵢ αᵢ⁽ˡ⁾ T⁽ⁱ⁾ (eq. 3.11): of one layer, or of all where α has a row for each."""
    return (alpha @ templates.flatten(1)).reshape(*alpha.shape[:-1], *templates.shape[1:])


def similarity(alpha: Tensor) -> Tensor:
    """S = |⟨α⁽ˡ⁾, α⁽ᵐ⁾⟩| / (‖α⁽ˡ⁾‖ ‖α⁽ᵐ⁾‖), layers × layers (eq. 3.13); zero where a row of α is."""
    unit = normalize(alpha, dim=-1)
    return (unit @ unit.T).abs().clamp(max=1.0)


def recurrence(alpha: Tensor) -> Tensor:
    """−Σ S over all pairs of layers: what eq. 3.19 adds to the loss, less its strength."""
    return -similarity(alpha).sum()


def factorize(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Templates and orthogonal coefficients with α T as near to the weights, layers × shape, as rank k is.

    With the eigenvectors U of W Wᵀ, largest first: α = U_k Q, T = αᵀ W for any orthogonal Q; exact where
    k ≥ layers. Q is drawn at random, as coefficients are in the source: it prefers no template to another.
    """
    rows = weights.detach().flatten(1).double().cpu()
    vectors = torch.linalg.eigh(rows @ rows.T)[1].flip(1)
    turn = torch.nn.init.orthogonal_(torch.empty(k, k, dtype=torch.float64, device="cpu"))
    alpha = vectors[:, :k] @ turn[: len(rows)]
    return (alpha.T @ rows).reshape(k, *weights.shape[1:]).to(weights), alpha.to(weights)


def linkage(alpha: Tensor) -> list[tuple[float, int, int]]:
    """Complete linkage of the layers: (level, set, set) of each of layers − 1 joins, the most alike first.

    Two sets are as alike as their least similar members, so that levels never rise. A set is called by its
    first layer, and joined to the set that comes before it.
    """
    link = similarity(alpha.detach().double().cpu()).fill_diagonal_(GONE)
    merges: list[tuple[float, int, int]] = []
    for _ in range(len(alpha) - 1):
        first, second = sorted(divmod(int(link.argmax()), len(alpha)))
        merges.append((float(link[first, second]), first, second))
        link[first] = torch.minimum(link[first], link[second])
        link[second] = link[first, first] = GONE
        link[:, first], link[:, second] = link[first].clone(), GONE
    return merges


def similar_sets(alpha: Tensor, threshold: float) -> list[list[int]]:
    """Sets of layers whose similarities all reach the threshold; a layer like no other is a set of its own.

    The sets at a lower threshold are unions of those at a higher one.
    """
    sets = {layer: [layer] for layer in range(len(alpha))}
    for level, first, second in linkage(alpha):
        if level < threshold - PARALLEL:
            break
        sets[first] += sets.pop(second)
    return sorted(sorted(one) for one in sets.values())


def joins(alpha: Tensor) -> list[float]:
    """The thresholds at which :func:`similar_sets` joins two sets more, highest first."""
    return [level for level, _, _ in linkage(alpha)]


def reparameterize(
    alpha: Tensor, sets: Sequence[Sequence[int]], scales: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """α′ and B of the four steps after Proposition 3.1: α′⁽ˡ⁾ = c_l e⁽ᵍ⁾, Bᵀ = α α′ᵀ (α′ α′ᵀ)⁻¹; T′ = B T.

    ``alpha`` is k × layers: columns are layers, as in the source. ``sets``: the layers of each group, every
    layer once. The source has all c_l = 1, which preserves the weights of layers with equal coefficients
    only; with the ``scales`` c, parallel ones are preserved too, whatever their lengths and signs.
    """
    layers = alpha.shape[1]
    if sorted(layer for one in sets for layer in one) != list(range(layers)):
        raise TorchliftError(f"reparameterize: sets must hold each of {layers} layers once, got {sets}.")
    c = alpha.new_ones(layers) if scales is None else scales
    new = alpha.new_zeros(len(sets), layers)
    for number, one in enumerate(sets):
        new[number, list(one)] = c[list(one)]
    return new, (alpha @ new.T / (new * new).sum(1)).T


def one_for_all(weights: Tensor) -> tuple[Tensor, Tensor, int]:
    """The weight V and scales c with the least Σ ‖W⁽ˡ⁾ − c_l V‖², and the layer whose scale is 1.

    W ≈ v vᵀ W with v the first eigenvector of W Wᵀ: exact where the weights (layers × shape) are parallel. V
    is what the layer with the largest |v| makes of it, so that no scale is above 1.
    """
    rows = weights.detach().flatten(1).double().cpu()
    v = torch.linalg.eigh(rows @ rows.T)[1][:, -1]
    owner = int(v.abs().argmax())
    shared = v[owner] * (v @ rows)
    return shared.reshape(weights.shape[1:]), v / v[owner], owner
