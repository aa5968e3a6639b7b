"""Small inputs first, the same weights throughout."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl


class Vision(nn.Module):
    """Patches, a table of positions with a class token, one attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 2, 2)
        self.first = nn.Parameter(torch.zeros(1, 1, 8))
        self.position = nn.Parameter(torch.randn(1, 17, 8))
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.first.expand(len(h), -1, -1), h], 1) + self.position
        return self.head((h + self.attend(h, h, h, need_weights=False)[0])[:, 0])


def pictures(n: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 1, 8, 8)
    return x, (x.mean((1, 2, 3)) > 0).long()


class Noting(nn.Module):
    """Notes its inputs and its table of positions."""

    def __init__(self) -> None:
        super().__init__()
        positions = torch.cat([torch.full((1, 1, 1), 9.0), torch.arange(16.0).view(1, 16, 1)], 1)
        self.pos, self.head = nn.Parameter(positions), nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        SEEN[:] = [*SEEN, (x[0].detach(), self.pos.detach())]
        return self.head(x.flatten(1).mean(1, keepdim=True, dtype=torch.float32))


SEEN: list[tuple[Tensor, Tensor]] = []


def smallest(x: Tensor, size: float) -> tuple[list[float], list[float]]:
    """The smallest input and the smallest table that a model sees."""
    SEEN.clear()
    recipe = tl.recipes.CoarseToFine(sizes=(size, 1.0))
    data = (x.expand(8, *x.shape[1:]), torch.arange(8) % 2)
    tl.fit(Noting(), data, recipe=recipe, optimizer=STILL, epochs=2, progress=False)
    pictures, tables = (min(column, key=torch.numel).flatten().tolist() for column in zip(*SEEN, strict=True))
    return pictures, tables


STILL = partial(torch.optim.SGD, lr=0.0)


@pytest.mark.parametrize("size", [0.5, 2])
def test_pictures_and_positions_are_averaged_and_the_class_token_stays(size: float) -> None:
    picture, positions = smallest(torch.arange(16.0).view(1, 1, 4, 4), size)
    assert picture == [2.5, 4.5, 10.5, 12.5]
    assert positions == [9, 2.5, 4.5, 10.5, 12.5]


def test_texts_are_cut() -> None:
    assert smallest(torch.arange(6).view(1, 6), 0.5)[0] == [0, 1, 2]


def test_a_vision_transformer_trains_at_two_sizes_and_stays_itself() -> None:
    model = Vision()
    result = tl.fit(model, pictures(), recipe=tl.recipes.CoarseToFine(), epochs=2, progress=False)
    phases = list(dict.fromkeys(row["phase"] for row in result.history))
    assert phases == ["size 0.5", "full size"]
    assert {n: p.shape for n, p in result.model.named_parameters()} == {
        n: p.shape for n, p in model.named_parameters()
    }


@pytest.mark.parametrize("equal_cost", [True, False])
def test_shares_are_parts_of_the_cost_so_small_steps_are_more(equal_cost: bool) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    result = tl.fit(
        nn.Sequential(*net, nn.Linear(4, 2)),
        pictures(),
        recipe=tl.recipes.CoarseToFine(),
        epochs=16,
        batch_size=16,
        equal_cost=equal_cost,
        progress=False,
    )
    steps = {row["phase"]: row["step"] for row in result.history}
    assert steps["size 0.5"] >= 3 * steps["full size"]
    assert equal_cost or sum(steps.values()) == 64


def test_one_optimizer_runs_over_all_sizes() -> None:
    """The full size starts with the moments of the small one: Adam's count of steps goes on."""
    counts: list[float] = []

    class Counting(torch.optim.Adam):
        def step(self, closure=None):
            result = super().step(closure)
            counts.append(next(iter(self.state.values()))["step"].item())
            return result

    recipe = tl.recipes.CoarseToFine()
    tl.fit(Vision(), pictures(), recipe=recipe, epochs=8, batch_size=16, optimizer=Counting, progress=False)
    assert max(counts) == 32


def test_a_flattened_map_raises_before_training() -> None:
    net = tl.Task(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))

    class Data:
        def example(self):
            return pictures(8)

    reason = tl.recipes.CoarseToFine().accepts(net, Data())  # type: ignore[arg-type]
    assert reason is not None
    assert "does not take inputs of size 0.5" in reason
