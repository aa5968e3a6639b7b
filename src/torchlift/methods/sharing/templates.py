"""Soft sharing: a group of layers mixes its weights from a few templates."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.core import Fit, Node, Problem, WeightLift
from torchlift.core.stored import owner_of
from torchlift.errors import OrderError, TorchliftError
from torchlift.methods.sharing import mixing as math
from torchlift.methods.sharing.banks import Bank, Mixed, banks
from torchlift.methods.sharing.folding import Fold, blend, fold_set, unblended
from torchlift.methods.sharing.repeats import groups_alike, groups_by_glob, user_name

SharingGroups = Literal["auto"] | Mapping[str, Sequence[str]]

StoredForm = Literal["weights", "templates"]


@dataclasses.dataclass(frozen=True)
class Templates(WeightLift):
    """min over T, α of f(W) − λ Σ S(α) with W⁽ˡ⁾ = Σᵢ αᵢ⁽ˡ⁾ T⁽ⁱ⁾ for the layers l of a group.

    Savarese and Maire (2019); thesis, chapter 3, eqs. 3.11 and 3.19. ``k`` templates for each group (None: as
    many as it has layers, and then training starts at the given weights; fewer start at the best that rank k
    can do). ``groups``: ``"auto"`` (equal shapes in blocks that repeat) or ``{name: [globs]}``, among the
    weights ``where`` picks. ``recurrence`` is λ.

    Projection writes plain weights. With ``fold``, layers whose coefficients have |cosine| ≥ ``fold`` get one
    stored weight, each use with a scale and sign of its own: exact where they are parallel. With
    ``store="templates"``, groups that would be left with more weights than templates keep the templates, and
    their layers mix their weights at every call. :meth:`folds` tells the error of each layer.
    """

    k: int | None = 2
    where: str = "*weight"
    groups: SharingGroups = "auto"
    recurrence: float = 0.0
    # The way back is not part of the problem: what one threshold lifted, another may project.
    fold: float | None = dataclasses.field(default=None, compare=False)
    store: StoredForm = dataclasses.field(default="weights", compare=False)

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise TorchliftError(f"k is a number of templates, 1 or more, or None; got {self.k}.")
        if self.fold is not None and not 0 <= self.fold <= 1:
            raise TorchliftError(f"fold is a |cosine| in [0, 1], or None; got {self.fold}.")
        if self.store not in ("weights", "templates"):
            raise TorchliftError(f"store is 'weights' or 'templates'; got {self.store!r}.")
        if isinstance(self.groups, str) and self.groups != "auto":
            raise TorchliftError(f"groups is 'auto' or {{name: [globs]}}; got {self.groups!r}.")

    @property
    def preserving(self) -> bool:
        """With a template for every layer; with fewer the start is the best of that rank."""
        return self.k is None

    @property
    def reshapes(self) -> bool:
        """Folded layers are other modules."""
        return self.fold is not None or self.store == "templates"

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """As for all weights; embeddings share only where groups name them."""
        candidates = super().eligible(problem)
        if not isinstance(self.groups, str):
            return candidates
        tables = (nn.Embedding, nn.EmbeddingBag)
        return {
            name: w for name, w in candidates.items() if not isinstance(owner_of(problem, name)[0], tables)
        }

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A bank for each group, a row of it for each layer."""
        groups = (
            groups_alike(weights)
            if isinstance(self.groups, str)
            else groups_by_glob(weights, self.groups, repr(self))
        )
        mixtures: dict[str, Node] = {}
        for group, names in groups.items():
            stacked = torch.stack([weights[name] for name in names])
            k = len(names) if self.k is None else self.k
            bank = Bank(group, tuple(names), stacked, k, self.recurrence)
            bank.way_back = self
            mixtures |= {name: Mixed(bank, layer) for layer, name in enumerate(names)}
        return mixtures

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Plain weights; with ``fold`` or ``store``, one stored tensor for several layers."""
        del fit
        return self.folded(problem)[0]

    def folds(self, problem: Problem) -> list[Fold]:
        """What the projection makes of each layer: the weight it uses, its scale, the error."""
        return self.folded(problem)[1]

    def folded(self, problem: Problem) -> tuple[Problem, list[Fold]]:
        """The projected problem and an account of it."""
        own, plain = self.own(problem), super().project(problem)
        if not self.reshapes:
            return plain, []
        if plain.body() is None:
            raise OrderError(f"{self!r} folds layers, but their weights are lifted twice: chain it first.")
        slots = {name.replace("/", "."): slots for name, slots in own.slots.items()}
        rows: list[Fold] = []
        for bank in banks(own).values():
            sets = math.similar_sets(bank.alpha, math.NEVER if self.fold is None else self.fold)
            smaller = self.store == "templates" and len(sets) > len(bank.templates)
            if smaller and not any(unblended(plain, slots[name]) for name in bank.layers):
                rows += blend(plain, bank.group, bank.layers, slots, bank.templates, bank.alpha)
            else:
                named = ([bank.layers[layer] for layer in one] for one in sets)
                rows += account_rows(
                    bank, [row for names in named for row in fold_set(plain, bank.group, names, slots)]
                )
        return plain, rows


def account_rows(bank: Bank, rows: list[Fold]) -> list[Fold]:
    """The account of a group, layer by layer."""
    order = {user_name(name): number for number, name in enumerate(bank.layers)}
    return sorted(rows, key=lambda row: order[row.layer])


def reparameterize(
    alpha: Tensor, templates: Tensor, groups: Sequence[Sequence[int]], scales: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """α′ and T′ = B T of Proposition 3.1, for coefficients k × layers and templates k × shape.

    One template for each of ``groups`` (layer numbers); see ``mixing.reparameterize``.
    """
    new, turn = math.reparameterize(alpha, groups, scales)
    return new, math.mix(templates, turn)
