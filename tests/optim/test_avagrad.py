"""AvaGrad against its two sources, with dead entries, and against what a torch optimizer must do."""

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlift.optim import AvaGrad, AvaGradW

from .references import RULES

SHAPES = [(7, 5), (5,), (3, 2, 2, 2), (1,)]


def weights(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def as_groups(params: list[torch.Tensor], options: dict) -> list[dict]:
    return [
        {"params": params[:2], "lr": 0.3, "eps": 0.1, **options},
        {"params": params[2:], "lr": 0.05, "eps": 1e-6, **options},
    ]


def set_grads(params: list[torch.Tensor], step: int, *, missing: bool = True) -> None:
    """The gradient of a quadratic plus noise; absent now and then, the last weight's at first."""
    generator = torch.Generator().manual_seed(1000 + step)
    for index, w in enumerate(params):
        noise = torch.randn(w.shape, generator=generator, dtype=w.dtype)
        late = index == 3 and step < 6
        absent = missing and (late or (step + index) % 5 == 0)
        w.grad = None if absent else (index + 1) * w.detach() + 0.3 * noise


@pytest.mark.parametrize("skip_dead", [True, False])
@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("published", {}),
        ("published", {"foreach": False}),
        ("thesis", {}),
        ("thesis", {"foreach": False}),
    ],
)
def test_follows_its_source_over_fifty_steps(rule, decoupled, skip_dead, how):
    options = {"betas": (0.9, 0.99), "weight_decay": 0.01, "decoupled": decoupled}
    ours, theirs = weights(), weights()
    optimizer = AvaGrad(as_groups(ours, options), rule=rule, skip_dead=skip_dead, **how)
    reference = RULES[rule](as_groups(theirs, options))
    for step in range(50):
        for group, twin in zip(optimizer.param_groups, reference.groups, strict=True):
            group["lr"] = twin["lr"] = twin["lr"] * (0.97 if step % 7 else 1.1)
        set_grads(ours, step)
        set_grads(theirs, step)
        optimizer.step()
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            assert (a - b).abs().max() < 1e-9
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(ours, weights(), strict=True))


def test_avagradw_is_the_decoupled_variant():
    one, two = weights(), weights()
    first = AvaGradW(one, weight_decay=0.1)
    second = AvaGrad(two, weight_decay=0.1, decoupled=True)
    for step in range(5):
        set_grads(one, step)
        set_grads(two, step)
        first.step()
        second.step()
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@given(eps=st.floats(1e-8, 1e2), beta=st.floats(0, 0.99))
@settings(deadline=None, max_examples=20)
def test_in_one_dimension_the_thesis_rule_is_momentum_sgd(eps, beta):
    w, twin = (torch.tensor([2.0], dtype=torch.float64) for _ in range(2))
    ava = AvaGrad([w], lr=0.1, betas=(beta, 0.9), eps=eps, rule="thesis")
    sgd = torch.optim.SGD([twin], lr=0.1 * (1 - beta), momentum=beta)
    for _ in range(20):
        w.grad, twin.grad = w.detach() + 0.5, twin.detach() + 0.5
        ava.step()
        sgd.step()
    assert abs(w.item() - twin.item()) < 1e-9


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("rule", ["published", "thesis"])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_entries_without_gradient_change_nothing_for_the_others(rule, decoupled, eps, weight_decay):
    """One tensor in ten entries dead (a mask), one all dead (a table never used), one without .grad."""
    alive = torch.arange(60) % 10 != 3
    full = torch.randn(60, dtype=torch.float64)
    small = full[alive].clone()
    unused, frozen = torch.ones(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    options = {"lr": 0.1, "eps": eps, "rule": rule, "decoupled": decoupled, "weight_decay": weight_decay}
    masked, plain = AvaGrad([full, unused, frozen], **options), AvaGrad([small], **options)
    for step in range(40):
        noise = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        full.grad, unused.grad = torch.where(alive, full + noise, 0.0), torch.zeros_like(unused)
        small.grad = small + noise[alive]
        masked.step()
        plain.step()
    assert (full[alive] - small).abs().max() < 1e-9
    assert small.abs().max() < 50
    if not decoupled:
        assert torch.equal(unused, torch.ones_like(unused))
    assert torch.equal(frozen, torch.ones_like(frozen))


def test_the_trap_is_there_without_skip_dead():
    """One dead weight in a thousand at ε = 1e-8 slows the others by orders of magnitude."""

    def moved(skip_dead: bool) -> float:
        w = torch.ones(1000, dtype=torch.float64)
        optimizer = AvaGrad([w], lr=0.1, eps=1e-8, skip_dead=skip_dead)
        for _ in range(20):
            w.grad = w.detach().clone()
            w.grad[0] = 0
            optimizer.step()
        return (1 - w[1:]).abs().mean().item()

    assert moved(True) > 1e4 * moved(False)


def test_a_weight_that_wakes_late_takes_no_leap():
    w = torch.ones(10, dtype=torch.float64)
    optimizer = AvaGrad([w], lr=0.1, eps=1e-8)
    for step in range(30):
        before = w.clone()
        w.grad = w.detach().clone()
        w.grad[0] = 0.0 if step < 20 else 1.0
        optimizer.step()
        assert (w - before).abs().max() < 0.5
    assert w[0] < 1


@pytest.mark.parametrize("how", [{}, {"rule": "thesis"}])
def test_weights_masked_after_they_lived_do_not_slow_the_rest(how):
    """m fades to zero long before v does: from then on they count for nothing."""

    def moved(masked: bool) -> float:
        w = torch.ones(100)
        optimizer = AvaGrad([w], lr=1e-3, betas=(0.5, 0.9), eps=1e-8, **how)
        generator = torch.Generator().manual_seed(0)
        for step in range(600):
            w.grad = 1 + 0.1 * torch.randn(100, generator=generator)
            if masked and step >= 20:
                w.grad[:50] = 0
            before = w.clone()
            optimizer.step()
        assert not masked or (optimizer.state[w]["exp_avg_sq"][:50] > 0).all()
        return (w - before)[50:].abs().mean().item()

    assert moved(True) == pytest.approx(moved(False), rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_and_single_tensors_agree(dtype):
    """Decay, dead entries, weights in channels-last order, gradients in another, a tensor with gaps."""
    shapes = [(40, 30), (8, 4, 3, 3), (6, 5), (), (0,), (40_000,)]
    steps: list[list[torch.Tensor]] = []
    for together in (False, True):
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
        tensors[1] = tensors[1].to(memory_format=torch.channels_last)
        tensors[2] = tensors[2][:, ::2]
        options = {"weight_decay": 0.01, "maximize": True, "foreach": together}
        optimizer = AvaGrad([{"params": tensors[:3]}, {"params": tensors[3:], "decoupled": True}], **options)
        for step in range(12):
            for w in tensors:
                w.grad = torch.randn(w.shape, generator=generator).to(dtype)
                w.grad[..., :1].zero_() if w.ndim else None
            optimizer.step()
            if step == 6:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        steps.append(tensors)
    close = 2e-5 if dtype == torch.float32 else 1e-12
    assert all(torch.allclose(a, b, rtol=close, atol=close) for a, b in zip(*steps, strict=True))


def test_all_zero_gradients_leave_the_weights_finite():
    w = torch.ones(4)
    optimizer = AvaGrad([w])
    for gradient in (0.0, 0.0, 1.0, 1.0):
        w.grad = torch.full_like(w, gradient)
        optimizer.step()
    assert torch.isfinite(w).all()
    assert (w < 1).all()


def test_sparse_gradients_equal_dense_ones():
    tables = [torch.nn.Embedding(12, 3, sparse=sparse, dtype=torch.float64) for sparse in (True, False)]
    tables[1].load_state_dict(tables[0].state_dict())
    optimizers = [AvaGrad(table.parameters(), lr=0.1, eps=1e-6) for table in tables]
    for step in range(8):
        for table, optimizer in zip(tables, optimizers, strict=True):
            optimizer.zero_grad()
            (table(torch.tensor([step % 4, 5, 5])) ** 2).sum().backward()
            optimizer.step()
    assert torch.equal(tables[0].weight, tables[1].weight)


@pytest.mark.parametrize("rule", ["published", "thesis"])
def test_large_tensors_are_cut_without_a_trace(rule):
    """A million weights in one tensor, in any memory order, or in many take the same steps."""
    values = torch.linspace(-1, 1, 2 * 8 * 256 * 257, dtype=torch.float64)
    kinds = [
        values.split(2**16 - 1),
        [values],
        [values.view(2, 8, 256, 257).to(memory_format=torch.channels_last)],
        [values.view(4096, 257).T.contiguous().T],
        [torch.stack([values, values], 1)[:, 0]],
    ]
    results = []
    for params in kinds:
        params = [w.clone(memory_format=torch.preserve_format) if w.is_contiguous() else w for w in params]
        optimizer = AvaGrad(params, rule=rule, lr=0.1)
        for step in range(3):
            for w in params:
                w.grad = w.detach() * (step + 1) + 0.1
                w.grad = w.grad.contiguous() if step == 1 else w.grad
            optimizer.step()
        results.append(torch.cat([w.reshape(-1) for w in params]))
    assert not torch.equal(results[0], values)
    for other in results[1:]:
        assert (results[0] - other).abs().max() < 1e-12


@pytest.mark.parametrize("rule", ["published", "thesis"])
def test_resumes_bit_for_bit(rule):
    def fresh(params):
        return AvaGrad(as_groups(params, {}), rule=rule, weight_decay=0.01)

    params = [w.float() for w in weights()]
    optimizer = fresh(params)
    for step in range(10):
        set_grads(params, step)
        optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    twins = copy.deepcopy([w.detach() for w in params])
    twin = fresh(twins)
    twin.load_state_dict(torch.load(file, weights_only=True))
    for step in range(10, 20):
        for ws, opt in ((params, optimizer), (twins, twin)):
            set_grads(ws, step)
            opt.step()
    assert all(torch.equal(a, b) for a, b in zip(params, twins, strict=True))
    assert isinstance(optimizer.state_dict()["param_groups"][0]["gamma"], float)


def test_capturable_and_plain_steps_agree():
    one, two = weights(), weights()
    first, second = AvaGradW(one, weight_decay=0.1), AvaGradW(two, weight_decay=0.1, capturable=True)
    for step in range(10):
        for params, optimizer in ((one, first), (two, second)):
            set_grads(params, step)
            optimizer.step()
    assert all((a - b).abs().max() < 1e-12 for a, b in zip(one, two, strict=True))


def test_low_precision_weights_move():
    w = torch.ones(50, dtype=torch.bfloat16)
    optimizer = AvaGrad([w], lr=0.1)
    for _ in range(20):
        w.grad = w.detach().clone()
        optimizer.step()
    assert (w < 0.7).all()
    assert optimizer.param_groups[0]["gamma"].dtype == torch.float32


def test_unknown_rule_names_the_known_ones():
    with pytest.raises(ValueError, match=r'"published" and "thesis"'):
        AvaGrad([torch.ones(1)], rule="paper")
