import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from torchlift.core import Task, anneal, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Distil, Lifter


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def net():
    trunk = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
    return nn.Sequential(trunk, nn.Linear(5, 3))


def pair():
    student, teacher = Task(net()), Task(net())
    batch = torch.randn(7, 4), torch.randint(3, (7,))
    return student, teacher, batch


def gradients(problem, batch):
    problem.zero_grad()
    problem(batch).backward()
    return {
        name.replace(".inner", ""): p.grad for name, p in problem.named_parameters() if "teacher" not in name
    }


def test_mix_zero_is_the_task_gradient_exactly():
    student, teacher, batch = pair()
    mine = gradients(Distil(student, teacher, {"0": None}, mix=0.0), batch)
    plain = gradients(student, batch)
    for name, gradient in plain.items():
        assert torch.equal(mine[f"student.{name}"], gradient)


def test_mix_one_gives_the_head_no_gradient_and_the_trunk_the_matching_one():
    student, teacher, batch = pair()
    mine = gradients(Distil(student, teacher, {"0": None}, mix=1.0), batch)
    assert mine["student.model.1.weight"] is None
    functional.mse_loss(student.model[0](batch[0]), teacher.model[0](batch[0]).detach()).backward()
    assert torch.equal(mine["student.model.0.0.weight"], student.model[0][0].weight.grad)


def test_the_objective_is_the_interpolation():
    student, teacher, batch = pair()
    match = functional.mse_loss(student.model[0](batch[0]), teacher.model[0](batch[0]))
    expected = 0.3 * match + 0.7 * student(batch)
    assert_close(Distil(student, teacher, {"0": None}, mix=0.3)(batch), expected)


def test_a_frozen_head_rests_and_the_trunk_learns_as_before():
    student, teacher, batch = pair()
    free = gradients(Distil(student, teacher, {"0": None}, mix=0.4), batch)
    frozen = gradients(Distil(student, teacher, {"0": None}, mix=0.4, freeze_head=True), batch)
    assert frozen["student.model.1.weight"] is None
    assert frozen["student.model.1.bias"] is None
    assert_close(frozen["student.model.0.0.weight"], free["student.model.0.0.weight"])
    value = Distil(student, teacher, {"0": None}, mix=0.4, freeze_head=True)(batch)
    assert_close(value, Distil(student, teacher, {"0": None}, mix=0.4)(batch))


def test_a_scheduled_mix_turns_with_the_fit():
    student, teacher, batch = pair()
    distil = Distil(student, teacher, {"0": None}, mix=(1.0, 0.0))
    for t in (0.0, 0.25, 1.0):
        anneal(distil, t)
        expected = Distil(student, teacher, {"0": None}, mix=1 - t)(batch)
        assert_close(distil(batch), expected)


def test_stored_targets_follow_their_samples_through_any_order():
    student, teacher, _ = pair()
    x, y = torch.randn(11, 4), torch.randint(3, (11,))
    live, stored = (Distil(student, teacher, {"0": None}, mix=0.5) for _ in range(2))
    stored.prepare((x[i : i + 4], y[i : i + 4]) for i in range(0, 11, 4))
    assert stored.indexed
    assert not live.indexed
    for _ in range(3):
        index = torch.randperm(11)[:5]
        assert_close(stored((x[index], y[index], index)), live((x[index], y[index])))
    teacher_calls = Distil(student, teacher, {"0": None}).eval()
    assert_close(teacher_calls((x, y)), Distil(student, teacher, {"0": None})((x, y)))


def test_dict_batches_carry_their_positions_under_index():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, values):
            return self.head(self.trunk(values))

    data = {"values": torch.randn(6, 4), "labels": torch.randint(3, (6,))}
    distil = Distil(Task(Net()), Task(Net()), {"trunk": None})
    live = distil(data)
    distil.prepare([data])
    index = torch.randperm(6)
    assert_close(distil({**{k: v[index] for k, v in data.items()}, "index": index}), live)


class Wide(nn.Module):
    """Two gigabytes to look at, none to keep."""

    def forward(self, x):
        return x.mean(1, keepdim=True).expand(-1, 2**25)


class Few(nn.Module):
    def forward(self, x):
        return x[:, :4]


def test_targets_too_large_to_keep_are_recomputed():
    model = nn.Sequential(Wide(), Few(), nn.Linear(4, 3))
    batch = torch.randn(8, 4), torch.randint(3, (8,))
    near = lambda one, other: (one[:, :2] - other[:, :2]).square().mean()
    distil = Distil(Task(model), Task(model), {"0": None}, match=near)
    distil.prepare([batch])
    assert not distil.indexed
    distil(batch)


def test_the_teacher_is_in_evaluation_mode_and_never_moves():
    student = Task(nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    distil = Distil(student, copy.deepcopy(student), {"2": None}, mix=0.5).train()
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    before = copy.deepcopy(distil.teacher.state_dict())
    first, second = distil.latents((x, y)), distil.latents((x, y))
    assert torch.equal(first[0], second[0])
    optimizer = torch.optim.SGD(distil.parameters(), 0.1, weight_decay=0.1)
    distil((x, y)).backward()
    optimizer.step()
    assert_close(distil.teacher.state_dict(), before, rtol=0, atol=0)


def test_matching_the_output_of_the_model_itself():
    student, teacher, batch = pair()
    distil = Distil(student, teacher, match="kl", mix=1.0)
    assert_close(distil(batch), divergence(student.predict(batch[0]), teacher.predict(batch[0])))
    assert type(distil.result().model) is nn.Sequential


def test_result_is_plain_and_a_copy():
    student, teacher, batch = pair()
    distil = Distil(student, teacher, {"0": None})
    distil(batch).backward()
    small = distil.result()
    assert not list(nodes(small))
    assert list(small.state_dict()) == list(student.state_dict())
    copy.deepcopy(distil)(batch)


def divergence(student, teacher):
    """KL(teacher ‖ student) of the classes along the last dimension, by torch's distributions."""
    p, q = (torch.distributions.Categorical(logits=logits) for logits in (teacher, student))
    return torch.distributions.kl_divergence(p, q).mean()


def test_the_divergence_of_sequences_is_the_mean_over_positions():
    one, other = (nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(12, 3)) for _ in range(2))
    distil = Distil(Task(one), Task(other), {"0": None}, match="kl", mix=1.0)
    x = torch.randn(5, 3, 4)
    assert_close(distil((x, torch.randint(3, (5,)))), divergence(one[0](x), other[0](x)))


def test_cosine_is_zero_for_parallel_and_two_for_opposite():
    student, _, batch = pair()
    for factor, distance in ((3.0, 0.0), (-1.0, 2.0)):
        teacher = copy.deepcopy(student)
        with torch.no_grad():
            for parameter in teacher.model[0][2].parameters():
                parameter.mul_(factor)
        distil = Distil(student, teacher, {"0": None}, match="cosine", mix=1.0)
        assert_close(distil(batch), torch.tensor(distance), atol=1e-12, rtol=0)


def test_several_places_are_matched_at_once():
    student, teacher, batch = pair()
    one = Distil(student, teacher, {"0.0": None}, mix=1.0)(batch)
    two = Distil(student, teacher, {"0.2": None}, mix=1.0)(batch)
    assert_close(Distil(student, teacher, {"0.0": None, "0.2": None}, mix=1.0)(batch), one + two)


def test_lifted_weights_cannot_be_looked_into():
    from torchlift.lifts import Expand

    student, teacher, _ = pair()
    with pytest.raises(TorchliftError, match="project its weights first"):
        Distil(Expand().lift(student), teacher, {"0": None})


def test_projection_reaches_the_lifted_latents_when_it_can():
    """A linear trunk can represent a linear lifter: matching alone finds it, to optimization accuracy."""
    task = Task(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), "mse")
    lift = Lifter("0", kind=lambda features: nn.Linear(features, features), mix=1.0)
    lifted = lift.lift(task)
    x = torch.randn(40, 3)

    def fit(problem, **settings):
        optimizer = torch.optim.LBFGS([p for p in problem.parameters() if p.requires_grad], max_iter=200)

        def closure():
            optimizer.zero_grad()
            loss = problem((x, torch.zeros(40, 2)))
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)

    small = lift.project(lifted, fit)
    off_data = 5 * torch.randn(9, 3)
    assert_close(small.predict(off_data), lifted.predict(off_data), rtol=0, atol=1e-4)
