"""Muon and SOAP against their formulas; the rest against torch's AdamW."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.cli.optimizers import optimizers
from torchlift.flops import count_flops
from torchlift.lifts import Rotate
from torchlift.models import GPT
from torchlift.optim import Muon, Soap
from torchlift.optim.muon import COEFFICIENTS, iterated, orthogonalized
from torchlift.optim.soap import steadied
from torchlift.train.checkpoint import load_checkpoint, save_checkpoint
from torchlift.train.cost import probe
from torchlift.train.optimizers import make_optimizer

BOTH = pytest.mark.parametrize("kind", [Muon, Soap])


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Conv2d(6, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)
    ).double()


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(16) % 3


def test_newton_schulz_is_its_polynomial_of_the_singular_values() -> None:
    a, b, c = COEFFICIENTS
    matrices = torch.randn(2, 7, 4, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    wanted = left @ torch.diag_embed(values) @ right
    tall, wide = orthogonalized([matrices, matrices.mT], 5)
    assert (tall - wanted).abs().max() < 1e-9
    assert (wide - wanted.mT).abs().max() < 1e-9
    assert (iterated(matrices.mT, 5) - wanted.mT).abs().max() < 1e-9


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
def test_frames_of_many_shapes_are_the_published_iteration(condition: float) -> None:
    """In single precision, down to singular values whose squares it cannot hold; one side is too large."""
    torch.manual_seed(0)
    batches = []
    for shape in ((1, 5, 9), (3, 64, 20), (2, 40, 300), (1, 90, 100), (1, 150, 160)):
        left, values, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
        spread = torch.logspace(0, -math.log10(condition), values.shape[1])
        batches.append(left @ torch.diag_embed(spread.expand_as(values)) @ right)
    for batch, actual in zip(batches, orthogonalized(batches, 5), strict=True):
        wide = batch if batch.shape[1] <= batch.shape[2] else batch.mT
        wanted = iterated(wide, 5)
        actual = actual if batch.shape[1] <= batch.shape[2] else actual.mT
        assert (actual - wanted).abs().max() < 1e-2 * wanted.abs().max()


@BOTH
def test_blocks_are_matrices_of_their_own(kind) -> None:
    """A weight in three blocks moves as its blocks would as weights; what cannot be cut so raises."""
    torch.manual_seed(0)
    whole = nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    apart = [nn.Parameter(block.clone()) for block in whole.detach().chunk(3)]
    first = kind([{"params": [whole], "blocks": 3}], lr=0.1, weight_decay=0.1)
    second = kind(apart, lr=0.1, weight_decay=0.1)
    for _ in range(12):
        gradient = torch.randn(6, 5, dtype=torch.float64)
        whole.grad = gradient
        for block, gradients in zip(apart, gradient.chunk(3), strict=True):
            block.grad = gradients.clone()
        first.step()
        second.step()
    assert (whole - torch.cat(list(apart))).abs().max() < 1e-9
    with pytest.raises(ValueError, match="6 rows are not 4 equal blocks"):
        kind([{"params": [whole], "blocks": 4}])


def test_fit_hands_blocks_to_the_weights_a_glob_names() -> None:
    task = tl.Task(GPT(11, context=6, width=8, depth=1, heads=2))
    optimizer = make_optimizer(task, Muon, [{"*qkv.weight": {"blocks": 6}}])
    counts = {
        name: group["blocks"]
        for group in optimizer.param_groups
        for name, p in task.named_parameters()
        if any(p is one for one in group["params"])
    }
    assert {name for name, count in counts.items() if count == 6} == {"model.blocks.0.attention.qkv.weight"}


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("blocks", [1, 3])
@BOTH
def test_a_stored_state_continues_bit_for_bit(kind, blocks: int, order, tmp_path) -> None:
    """A checkpoint keeps no strides and no alignment. Shapes that come once and twice, and a rest."""
    shapes = [(6, 4, 3, 3), (12, 6), (12, 6), (9, 20), (66, 70), (150, 140), (7,), (6, 4, 3, 3)]
    options = {"lr": 0.1, "weight_decay": 0.1} | ({"every": 3} if kind is Soap else {})
    random = torch.Generator().manual_seed(0)
    draws = [[torch.randn(shape, generator=random) for shape in shapes] for _ in range(11)]

    def laid(tensor: Tensor) -> Tensor:
        return tensor.clone(memory_format=order if tensor.ndim == 4 else torch.contiguous_format)

    def weights_and_optimizer(weights: list[Tensor]) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        params = [nn.Parameter(laid(weight)) for weight in weights]
        rest = {"params": params[-1:], "matrices": False}
        return params, kind([{"params": params[:-1], "blocks": blocks}, rest], **options)

    def walk(params: list[nn.Parameter], optimizer: torch.optim.Optimizer, grads: list[list[Tensor]]) -> None:
        for some in grads:
            for param, grad in zip(params, some, strict=True):
                param.grad = laid(grad)
            optimizer.step()

    for stop in (1, 2, 5):
        params, optimizer = weights_and_optimizer(draws[0])
        walk(params, optimizer, draws[1 : 1 + stop])
        others, resumed = weights_and_optimizer([param.detach() for param in params])
        save_checkpoint(tmp_path / "state", optimizer.state_dict())
        resumed.load_state_dict(load_checkpoint(tmp_path / "state"))
        for one, two in ((params, optimizer), (others, resumed)):
            walk(one, two, draws[1 + stop :])
        for one, two in zip(params, others, strict=True):
            assert torch.equal(one, two), (stop, tuple(one.shape))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_is_torchs_up_to_its_bfloat16() -> None:
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 12 * 8).view(12, 8)) for _ in range(2))
    first = Muon([ours], lr=0.02, weight_decay=0.1)
    second = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    goal = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    start = ours.detach().clone()
    for _ in range(5):
        for weight, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            (weight - goal).square().sum().backward()
            optimizer.step()
    assert (ours - theirs).abs().max() < 0.02 * (ours - start).abs().max()


def slow_soap(
    weight: Tensor, grads: list[Tensor], lr: float, decay: float, every: int, largest: int
) -> Tensor:
    """Algorithm 3 of the paper, word for word: m in plain coordinates, one matrix at a time."""
    beta1, beta2, eps = 0.95, 0.9, 1e-8
    m, v, w = torch.zeros_like(weight), torch.zeros_like(weight), weight.clone()
    sizes = w.shape
    products = [grads[0] @ grads[0].T, grads[0].T @ grads[0]]
    moments = [(1 - beta2) * product for product in products]
    bases = [
        torch.linalg.eigh(steadied(p))[1] if n <= largest else torch.eye(n, dtype=w.dtype)
        for p, n in zip(products, sizes, strict=True)
    ]
    for count, g in enumerate(grads[1:], 1):
        left, right = bases
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (left.T @ g @ right) ** 2
        hat = (left.T @ m @ right) / (1 - beta1**count) / ((v / (1 - beta2**count)).sqrt() + eps)
        w = (1 - lr * decay) * w - lr * left @ hat @ right.T
        moments = [beta2 * p + (1 - beta2) * new for p, new in zip(moments, (g @ g.T, g.T @ g), strict=True)]
        if count % every == 0:
            bases = [
                torch.linalg.qr(steadied(p) @ q)[0] if n <= largest else q
                for p, q, n in zip(moments, bases, sizes, strict=True)
            ]
    return w


@pytest.mark.parametrize("largest", [1024, 5])
def test_soap_is_algorithm_3(largest: int) -> None:
    """Two kernels and a matrix, of which one shape comes twice and one side may be too large to turn."""
    torch.manual_seed(0)
    shapes = [(4, 2, 3, 1), (4, 6), (5, 3)]
    params = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    grads = [[torch.randn_like(p) for p in params] for _ in range(12)]
    start = [p.detach().flatten(1).clone() for p in params]
    optimizer = Soap(params, 0.03, (0.95, 0.9), weight_decay=0.1, every=3, largest=largest)
    for some in grads:
        for param, grad in zip(params, some, strict=True):
            param.grad = grad
        optimizer.step()
    for number, (param, weight) in enumerate(zip(params, start, strict=True)):
        mine = [some[number].flatten(1) for some in grads]
        wanted = slow_soap(weight, mine, 0.03, 0.1, 3, largest)
        assert (param.detach().flatten(1) - wanted).abs().max() < 1e-9


@BOTH
def test_the_rest_is_adamws(kind) -> None:
    ours, theirs = net(), net()
    first = kind(ours.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    second = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    x, y = batch()
    for _ in range(3):
        loss = nn.functional.cross_entropy(ours(x), y)
        loss.backward()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.grad = mine.grad.clone()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (mine.ndim == 1) == bool((mine - other).abs().max() < 1e-12)


@BOTH
def test_lookup_tables_and_what_groups_say_are_left_to_adamw(kind) -> None:
    torch.manual_seed(0)
    task = tl.Task(GPT(11, context=6, width=8, depth=1, heads=2))
    x = torch.randint(0, 11, (4, 6))
    for problem in (task, Rotate(batches=((x, x),)).lift(task)):
        optimizer = make_optimizer(problem, partial(kind, lr=0.01), [{"*qkv*": {"matrices": False}}])
        problem((x, x)).backward()
        optimizer.step()
        optimizer.step()
        plain = {
            problem.label(name).removesuffix(".coordinates")
            for name, p in problem.named_parameters()
            if p.ndim == 2 and "exp_avg_sq" in optimizer.state[p] and "left" not in optimizer.state[p]
        }
        assert plain == {"token.weight", "position.weight", "blocks.0.attention.qkv.weight"}


def test_what_an_optimizer_computes_is_counted() -> None:
    task = tl.Task(net())
    bare = probe(task, batch()).flops
    assert probe(task, batch(), lambda p: torch.optim.Adam(p.parameters())).flops == bare
    shapes = [(6, 18), (6, 54), (3, 24)]
    side = max(m for m, _ in shapes)  # of the frame
    muon = sum(2 * 2 * m * m * n for m, n in shapes) + 3 * 2 * side**3 * (5 + 4 + 2 * 4)
    assert probe(task, batch(), lambda p: Muon(p.parameters())).flops - bare == muon
    every = 4
    qr = sum(8 * s**3 / 3 for shape in shapes for s in shape)
    power = sum(2 * s**3 for shape in shapes for s in shape)
    change = sum(2 * 2 * s * m * n for m, n in shapes for s in (m, n))
    steps = sum(3 * 2 * s * m * n for m, n in shapes for s in (m, n))
    soap = probe(task, batch(), lambda p: Soap(p.parameters(), every=every)).flops - bare
    assert soap == pytest.approx(steps + (qr + power + change) / every, rel=1e-3)


def test_decompositions_have_a_price() -> None:
    assert count_flops(lambda: torch.linalg.eigh(torch.eye(6).expand(2, 6, 6))) == 2 * 9 * 6**3
    assert count_flops(lambda: torch.linalg.qr(torch.ones(9, 6))) == 4 * 6**2 * 7


def test_they_have_names_and_their_work_is_on_the_bill() -> None:
    assert (optimizers()["muon"], optimizers()["soap"]) == (Muon, Soap)
    data = (torch.randn(32, 4), torch.arange(32) % 2)
    assert tl.fit(nn.Linear(4, 2), data, optimizer=Muon, epochs=1, progress=False).cost > 1


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"weight_decay": -1.0}]
)
@BOTH
def test_what_cannot_work_raises(kind, options) -> None:
    with pytest.raises(ValueError, match=kind.__name__):
        kind([nn.Parameter(torch.zeros(2, 2))], **options)
