import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchlift.core import Task, anneal, nodes
from torchlift.errors import NeedsFitError, SelectionError, TorchliftError
from torchlift.lifts import Lifter, deviation
from torchlift.models import BlockNet, LeNet5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def batch(*shape, classes=10):
    return torch.rand(*shape), torch.randint(classes, (shape[0],))


def little_fit(problem, steps=3, lr=0.05, **settings):
    problem.train()
    optimizer = torch.optim.SGD(problem.parameters(), lr)
    for _ in range(steps):
        optimizer.zero_grad()
        problem(little_fit.batch).backward()
        optimizer.step()
    problem.eval()


def added(lift, task):
    return sum(p.numel() for p in lift.lift(task).parameters()) - sum(p.numel() for p in task.parameters())


def test_parameter_counts_of_the_paper():
    task = Task(LeNet5())
    assert sum(p.numel() for p in task.parameters()) == 70_346
    assert added(Lifter("trunk", width=1000), task) == 169_084
    assert added(Lifter("trunk.conv2", kind="conv", width=32), task) == 9_264


@pytest.mark.parametrize("kind", ["mlp", "conv", "block", "linear", "fading"])
def test_zeros_is_exactly_the_identity_and_learns(kind):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 10))
    task = Task(model.eval())
    lift = Lifter("0", kind=kind, activation="none")
    lifted = lift.lift(task)
    x, y = batch(5, 3, 8, 8)
    assert torch.equal(lifted.predict(x), task.predict(x))
    assert deviation(lifted, (x, y)) == {"0": 0.0}
    lifted((x, y)).backward()
    last = next(node for _, node in nodes(lifted)).lifter.down.weight
    assert last.grad.abs().max() > 0


def test_both_layers_learn_after_one_step():
    lifted = Lifter("trunk").lift(Task(BlockNet(1), "mse"))
    data = torch.rand(8, 5), torch.rand(8, 1)
    little_fit.batch = data
    little_fit(lifted, steps=1)
    lifted(data).backward()
    node = next(node for _, node in nodes(lifted))
    assert node.lifter.up.weight.grad.abs().max() > 0


@pytest.mark.parametrize("init", ["xavier", "kaiming"])
def test_masked_init_is_near_the_identity_and_reported(init):
    task = Task(LeNet5())
    data = batch(4, 3, 32, 32)
    dense = deviation(Lifter("trunk", width=1000, init=init).lift(task), data)["trunk"]
    sparse = deviation(Lifter("trunk", width=1000, init=init, sparsity=0.99).lift(task), data)["trunk"]
    small = deviation(Lifter("trunk", width=1000, init=init, scale=0.1).lift(task), data)["trunk"]
    assert 0 < sparse < dense / 5
    assert 0 < small < dense / 50
    node = next(n for _, n in nodes(Lifter("trunk", width=1000, init=init, sparsity=0.99).lift(task)))
    kept = (node.lifter.up.weight != 0).double().mean()
    assert float(kept) == pytest.approx(0.01, abs=0.002)
    assert not Lifter("trunk", init=init).preserving


def test_projection_gives_the_base_architecture_back():
    task = Task(LeNet5())
    lift = Lifter("trunk.conv2", kind="conv", init="xavier")
    lifted = lift.lift(task)
    little_fit.batch = batch(6, 3, 32, 32)
    small = lift.project(lifted, little_fit)
    assert type(small) is Task
    assert [(n, type(m)) for n, m in small.named_modules()] == [(n, type(m)) for n, m in task.named_modules()]
    before, after = task.state_dict(), small.state_dict()
    assert list(before) == list(after)
    assert all(before[name].shape == after[name].shape for name in before)
    hooks = [m for m in small.modules() if m._forward_hooks or m._forward_pre_hooks or m._backward_hooks]
    assert not hooks
    assert not list(nodes(small))


def test_lift_and_project_leave_their_input_alone():
    task = Task(LeNet5())
    lift = Lifter("trunk", width=8, init="xavier")
    lifted = lift.lift(task)
    before = copy.deepcopy(lifted.state_dict())
    little_fit.batch = batch(6, 3, 32, 32)
    lift.project(lifted, little_fit)
    assert not list(nodes(task))
    assert_close(lifted.state_dict(), before, rtol=0, atol=0)
    lifted(little_fit.batch).backward()


def test_projection_without_fit_says_so():
    lift = Lifter("trunk")
    with pytest.raises(NeedsFitError, match="distils"):
        lift.project(lift.lift(Task(LeNet5())))
    with pytest.raises(TorchliftError, match="only kinds 'linear' and 'fading' merge"):
        lift.merge(lift.lift(Task(LeNet5())))


CONVS = {
    "stride and padding": (nn.Conv2d(2, 5, 3, stride=2, padding=1), (3, 2, 9, 9)),
    "reflect, dilation": (nn.Conv2d(2, 5, 3, padding=2, dilation=2, padding_mode="reflect"), (3, 2, 9, 9)),
    "no bias": (nn.Conv2d(2, 5, 3, bias=False), (3, 2, 9, 9)),
    "one dimension": (nn.Conv1d(2, 5, 3, padding=1), (3, 2, 9)),
    "three dimensions": (nn.Conv3d(2, 5, 3), (3, 2, 5, 5, 5)),
    "transposed": (nn.ConvTranspose2d(2, 5, 3, stride=2, padding=1, output_padding=1), (3, 2, 6, 6)),
    "linear": (nn.Linear(4, 5), (3, 4)),
    "sequence": (nn.Linear(4, 5), (3, 7, 4)),
    "sequential": (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5)), (3, 4)),
}


@pytest.mark.parametrize("case", CONVS)
def test_linear_lifters_merge_exactly_off_the_data(case):
    layer, shape = copy.deepcopy(CONVS[case])
    model = nn.Sequential(layer, nn.Sigmoid()).double()
    lift = Lifter("0", kind="linear", init="xavier", width=7)
    lifted = lift.lift(Task(model, lambda model, x: model(x).square().mean()))
    for parameter in lifted.parameters():
        nn.init.normal_(parameter)
    merged = lift.merge(lifted)
    x = 10 * torch.randn(*shape, dtype=torch.float64)
    assert_close(merged.predict(x), lifted.predict(x), rtol=1e-12, atol=1e-12)
    assert list(merged.state_dict()) == [f"model.{name}" for name in model.state_dict()]


@pytest.mark.parametrize("case", CONVS)
def test_fading_lifters_bend_at_first_and_merge_exactly_at_the_end(case):
    layer, shape = copy.deepcopy(CONVS[case])
    lift = Lifter("0", kind="fading", init="xavier")
    lifted = lift.lift(Task(nn.Sequential(layer, nn.Sigmoid()).double(), lambda model, x: model(x).mean()))
    for parameter in lifted.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(*shape, dtype=torch.float64)
    gaps = []
    for t in (0.0, 0.5, 1.0):
        anneal(lifted, t)
        gaps.append(float((lift.merge(lifted).predict(x) - lifted.predict(x)).detach().abs().max()))
    assert gaps[0] > gaps[2]
    assert gaps[1] > gaps[2]
    assert gaps[2] < 1e-12


def test_linear_lifters_reject_what_they_cannot_merge_into():
    def lift(module):
        return Lifter("0", kind="linear").lift(Task(nn.Sequential(module, nn.ReLU())))

    with pytest.raises(TorchliftError, match="groups=2"):
        lift(nn.Conv2d(4, 4, 3, groups=2))
    with pytest.raises(TorchliftError, match="not into BatchNorm1d"):
        lift(nn.BatchNorm1d(4))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(TorchliftError, match="shared"):
        Lifter("0", kind="linear").lift(Task(tied))


def test_a_block_rejects_signed_inputs():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(TorchliftError, match="activation='none'"):
        Lifter("0", kind="block").lift(Task(model))
    assert Lifter("0", kind="block", activation="none").lift(Task(model))

    class Signed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return -self.linear(x).relu()

    lifted = Lifter("0", kind="block").lift(Task(nn.Sequential(Signed(), nn.Linear(4, 2))))
    with pytest.raises(TorchliftError, match="non-negative"):
        lifted.predict(torch.randn(30, 4))


def test_a_block_after_a_trunk_that_ends_in_a_relu_is_the_identity():
    task = Task(BlockNet(1), "mse")
    lifted = Lifter("trunk", kind="block").lift(task)
    x = torch.randn(9, 5)
    assert torch.equal(lifted.predict(x), task.predict(x))
    assert added(Lifter("trunk", kind="block"), task) == 2 * (64 * 64 + 64)


def test_tuple_outputs_need_an_index():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    task = Task(Net())
    x = torch.randn(5, 7, 4)
    lifted = Lifter("lstm", index=0).lift(task)
    assert torch.equal(lifted.predict(x), task.predict(x))
    with pytest.raises(TorchliftError, match="index=0"):
        Lifter("lstm").lift(task).predict(x)
    little_fit.batch = (x, torch.randint(3, (5,)))
    small = Lifter("lstm", index=0).project(lifted, little_fit)
    assert [type(m) for m in small.modules()] == [type(m) for m in task.modules()]


def test_modules_whose_parent_never_calls_them_raise():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    attention = nn.Sequential(nn.MultiheadAttention(8, 2))
    with pytest.raises(SelectionError, match="MultiheadAttention never calls"):
        Lifter("0.out_proj").lift(Task(attention))
    with pytest.raises(SelectionError, match="TransformerEncoderLayer never calls"):
        Lifter("0.linear2").lift(Task(nn.Sequential(layer)))
    task = Task(nn.Sequential(layer).eval())
    x = torch.randn(3, 5, 8)
    assert torch.equal(Lifter("0").lift(task).predict(x), task.predict(x))


def test_width_is_inferred_or_asked_for():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    x = torch.rand(2, 3, 8, 8)
    with pytest.raises(TorchliftError, match="features="):
        Lifter("1").lift(Task(model))
    assert torch.equal(Lifter("1", features=4).lift(Task(model)).predict(x), model(x))
    with pytest.raises(TorchliftError, match="features=4"):
        Lifter("1", features=5).lift(Task(model)).predict(x)


def test_nested_matches_lift_the_outermost():
    task = Task(nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)))
    assert [name for name, _ in nodes(Lifter("*").lift(task))] == ["model.0", "model.1"]


def test_a_shared_module_is_lifted_and_projected_under_all_its_names():
    shared = nn.Linear(4, 4)
    task = Task(nn.Sequential(nn.Sequential(shared), shared))
    lift = Lifter("0.0", init="xavier")
    lifted = lift.lift(task)
    assert lifted.model[0][0] is lifted.model[1]
    little_fit.batch = torch.randn(6, 4), torch.randint(4, (6,))
    small = lift.project(lifted, little_fit)
    assert type(small.model[1]) is nn.Linear
    assert small.model[0][0] is small.model[1]


def test_factories_and_modules_are_used_as_they_are():
    task = Task(BlockNet(1), "mse")
    with_factory = Lifter("trunk", kind=lambda features: nn.Linear(features, features)).lift(task)
    assert type(with_factory.model.trunk.lifter) is nn.Linear
    mine = nn.Identity()
    lifted = Lifter("trunk", kind=mine).lift(task)
    x = torch.rand(3, 5)
    assert torch.equal(lifted.predict(x), task.predict(x))


def test_settings_are_checked_at_the_door():
    for bad in ({"kind": "cnn"}, {"mix": 1.2}, {"match": "l7"}, {"sparsity": 1.0}):
        with pytest.raises(TorchliftError):
            Lifter("trunk", **bad)
