"""Delayed Adam and Adam with growing ε against their formulas, and what every optimizer here must do."""

import copy
import math

import pytest
import torch
from torch import nn

from torchlift.optim import AdamEps, AvaGrad, DelayedAdam

EVERY = {
    "avagrad": (AvaGrad, {}),
    "avagrad, thesis": (AvaGrad, {"rule": "thesis"}),
    "avagrad, decoupled": (AvaGrad, {"decoupled": True, "weight_decay": 0.1}),
    "delayed adam": (DelayedAdam, {}),
    "delayed adam, literal": (DelayedAdam, {"bias_correction": False, "eps": 0.1}),
    "adam, growing epsilon": (AdamEps, {"lr": 0.01}),
}
every = pytest.mark.parametrize(("kind", "options"), EVERY.values(), ids=EVERY.keys())


def start() -> list[torch.Tensor]:
    return [torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).clone(), torch.ones(5).double()]


def run(optimizer: torch.optim.Optimizer, params: list[torch.Tensor], steps: range) -> list[torch.Tensor]:
    for step in steps:
        for w in params:
            w.grad = w.detach() + 0.3 * math.sin(step + 1)
        optimizer.step()
    return [w.detach().clone() for w in params]


def apart(one: list[torch.Tensor], two: list[torch.Tensor]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("bias_correction", [True, False])
def test_delayed_adam_follows_algorithm_6(bias_correction):
    params, twins = start(), start()
    beta1, beta2, eps, lr = 0.9, 0.99, 0.01, 0.05
    run(
        DelayedAdam(params, lr=lr, betas=(beta1, beta2), eps=eps, bias_correction=bias_correction),
        params,
        range(30),
    )
    for w in twins:
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for t in range(1, 31):
            g = w + 0.3 * math.sin(t)
            m = beta1 * m + (1 - beta1) * g
            if not bias_correction:
                w -= lr * m / (v.sqrt() + eps)
            elif t > 1:
                w -= lr * m / (1 - beta1**t) / ((v / (1 - beta2 ** (t - 1))).sqrt() + eps)
            v = beta2 * v + (1 - beta2) * g * g
    assert apart(params, twins) < 1e-12


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [True, False])
def test_adam_eps_without_growth_is_adam(decoupled, weight_decay):
    params, twins = start(), start()
    torch_kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    ours = AdamEps(
        params, lr=0.05, eps=1e-3, power=0, scale_lr=False, decoupled=decoupled, weight_decay=weight_decay
    )
    theirs = torch_kind(twins, lr=0.05, eps=1e-3, weight_decay=weight_decay)
    assert apart(run(ours, params, range(30)), run(theirs, twins, range(30))) < 1e-12


def test_adam_eps_grows_epsilon_as_the_corollary_says():
    """ε_t = ε·T^p₁·t^p₂ and α_t = lr·ε_t: the same as Adam with both set by hand at every step."""
    params, twins = start(), start()
    ours = AdamEps(params, lr=0.01, eps=0.5, power=0.25, horizon=16, horizon_power=0.25)
    theirs = torch.optim.Adam(twins)
    for step in range(20):
        eps = 0.5 * 16**0.25 * (step + 1) ** 0.25
        theirs.param_groups[0].update(eps=eps, lr=0.01 * eps)
        run(ours, params, range(step, step + 1))
        run(theirs, twins, range(step, step + 1))
        assert apart(params, twins) < 1e-12


def test_adam_eps_rejects_a_falling_epsilon():
    with pytest.raises(ValueError, match="would let ε fall"):
        AdamEps(start(), power=-0.5)


@every
def test_descends(kind, options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(64, 3)
    y = x.prod(1, keepdim=True)
    optimizer = kind(net.parameters(), **options)
    first = nn.functional.mse_loss(net(x), y).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.97 * first


@every
def test_closures_schedules_and_groups(kind, options):
    params = start()
    optimizer = kind([{"params": params[:1], "lr": 0.02}, {"params": params[1:]}], **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.0 if epoch < 3 else 1.0)

    def closure():
        assert torch.is_grad_enabled()
        for w in params:
            w.grad = w.detach().clone()
        return 7.0

    optimizer.step(closure)
    schedule.step()
    before = [w.clone() for w in params]
    for _ in range(4):
        assert optimizer.step(closure) == 7.0
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert apart(before, params) > 0


@every
def test_a_rate_of_zero_moves_nothing(kind, options):
    params, before = start(), start()
    run(kind(params, **{**options, "lr": 0.0}), params, range(5))
    assert apart(params, before) == 0


@every
def test_foreach_and_loop_agree(kind, options):
    one, two = start(), start()
    first, second = kind(one, foreach=True, **options), kind(two, foreach=False, **options)
    assert apart(run(first, one, range(20)), run(second, two, range(20))) < 1e-13


@every
def test_maximize_is_minimizing_the_negative(kind, options):
    one, two = start(), start()
    first, second = kind(one, **options), kind(two, maximize=True, **options)
    for step in range(10):
        for a, b in zip(one, two, strict=True):
            a.grad = a.detach() + step
            b.grad = -(b.detach() + step)
        first.step()
        second.step()
    assert apart(one, two) == 0


@every
def test_complex_weights_are_pairs_of_reals(kind, options):
    z = torch.complex(torch.linspace(-1, 1, 6).double(), torch.linspace(0, 2, 6).double())
    pairs = torch.view_as_real(z).clone()
    first, second = kind([z], **options), kind([pairs], **options)
    assert apart([torch.view_as_real(run(first, [z], range(0))[0])], [pairs]) == 0
    for step in range(10):
        z.grad = z.detach() * (step + 1)
        pairs.grad = pairs.detach() * (step + 1)
        first.step()
        second.step()
    assert apart([torch.view_as_real(z)], [pairs]) < 1e-13


@every
@pytest.mark.parametrize("flags", [{}, {"foreach": False}, {"capturable": True}])
def test_state_goes_round_in_the_middle_of_training(kind, options, flags):
    params = start()
    optimizer = kind(params, **options, **flags)
    run(optimizer, params, range(7))
    twins = [w.clone() for w in params]
    twin = kind(twins, **options, **flags)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    copied = copy.deepcopy(optimizer)
    assert apart(run(optimizer, params, range(7, 15)), run(twin, twins, range(7, 15))) == 0
    ghosts = [w for group in copied.param_groups for w in group["params"]]
    assert apart(run(copied, ghosts, range(7, 15)), params) == 0


@every
def test_a_tensor_as_learning_rate(kind, options):
    one, two = start(), start()
    first = kind(one, **{**options, "lr": 0.03})
    second = kind(two, **{**options, "lr": torch.tensor([0.03], dtype=torch.float64)})
    assert apart(run(first, one, range(8)), run(second, two, range(8))) < 1e-13


@every
def test_steps_can_be_differentiated(kind, options):
    """d(weights after four steps)/d(gradient scale), by autograd and by finite differences."""

    def last(scale: torch.Tensor) -> torch.Tensor:
        w = torch.linspace(0.5, 1.5, 4, dtype=torch.float64).requires_grad_().clone()
        optimizer = kind([w], differentiable=True, **options)
        for step in range(4):
            w.grad = scale * (step + 1) * torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
            optimizer.step()
        return w

    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(last, (scale,))


@every
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_steps_agree(kind, options):
    torch.compiler.reset()
    one, two = start(), start()
    first, second = kind(one, **options), kind(two, **options)
    second.step = torch.compile(second.step, backend="aot_eager")
    assert apart(run(first, one, range(8)), run(second, two, range(8))) < 1e-12
