"""What every run promises of the model it delivers."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Fit, Task
from torchlift.errors import DivergedError, TorchliftError


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_last_step_that_diverges_is_not_delivered() -> None:
    sgd = partial(torch.optim.SGD, lr=3e38)
    with pytest.raises(DivergedError, match="delivered model"):
        tl.fit(model(), data(), data(), optimizer=sgd, epochs=1, batch_size=32, progress=False)


def test_a_recipe_that_changes_a_frozen_parameter_raises() -> None:
    def careless(task: Task, fit: Fit) -> Task:
        fit(task)
        with torch.no_grad():
            task.model[0].weight.add_(1)
        return task

    net = model()
    net[0].weight.requires_grad_(False)
    with pytest.raises(TorchliftError, match=r"frozen parameters \(0\.weight\)"):
        tl.fit(net, data(), recipe=careless, epochs=1, progress=False)


def test_weights_a_target_cannot_reach_are_named_before_training() -> None:
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 2))
    for recipe in (tl.recipes.MagnitudePruning(sparsity=0.6), tl.lifts.SoftMask(sparsity=0.6)):
        with pytest.raises(TorchliftError, match=r"cannot reach 0\.weight, which is computed"):
            tl.fit(net, data(), recipe=recipe, epochs=1, progress=False)


def test_a_glob_for_weights_means_those_of_recurrent_cells_too() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.LSTMCell(8, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.cell(x)[0])

    pruning = tl.recipes.MagnitudePruning(sparsity=0.6)
    result = tl.fit(Cell(), data(), recipe=pruning, epochs=2, progress=False)
    matrices = [p for p in result.model.parameters() if p.ndim > 1]
    zeros = sum(int((p == 0).sum()) for p in matrices) / sum(p.numel() for p in matrices)
    assert zeros == pytest.approx(0.6, abs=0.01)
