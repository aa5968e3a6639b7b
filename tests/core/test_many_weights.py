"""What lifting costs grows with the model, not with its square."""

import pytest
from torch import nn

import torchlift as tl


@pytest.mark.parametrize("count", [2, 50])
def test_lifting_walks_over_the_model_a_few_times_however_many_weights(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    task = tl.Task(nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))), "mse")
    real, walks = nn.Module.named_parameters, [0]

    def counted(self: nn.Module, *arguments: object, **options: object) -> object:
        walks[0] += self.__class__.__name__ == "Task"
        return real(self, *arguments, **options)

    monkeypatch.setattr(nn.Module, "named_parameters", counted)
    tl.lifts.SoftMask().lift(task)
    assert walks[0] < 8
