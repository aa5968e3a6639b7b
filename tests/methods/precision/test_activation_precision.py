"""Bits of activations: ranges, clips and grids of SMOL-A and PACT."""

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.core import Node, Task, nodes
from torchlift.errors import NeedsFitError, TorchliftError
from torchlift.lifts import ActivationPrecision, Pact
from torchlift.testing import LAWS


def model() -> nn.Module:
    layers = [
        nn.Linear(4, 8),
        nn.ReLU(),
        nn.Linear(8, 8),
        nn.Sigmoid(),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.ReLU6(),
    ]
    return nn.Sequential(*layers, nn.Linear(8, 3))


def batch():
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(1)


def noisy(problem) -> list[Node]:
    return [node for _, node in nodes(problem)]


@pytest.mark.parametrize("law", sorted(set(LAWS) - {"gradients_are_right"}))  # a draw: tested below
@pytest.mark.parametrize("lift", [ActivationPrecision(strength=1e-3), Pact(bits=3)], ids=["noise", "pact"])
def test_laws(law, lift):
    LAWS[law](lift, Task(model()), batch())


def test_noise_is_half_the_range_times_the_limit():
    lift = ActivationPrecision(p_init=3, clip=5.0)
    for node, width in zip(noisy(lift.lift(Task(model())).train()), (5.0, 1.0, 2.0, 6.0), strict=True):
        x = torch.full((400, 100), 0.5)
        noise = (node(x) - node.inner(x)).detach()
        assert float(noise.abs().max()) <= width / 2 * 2**-2 + 1e-6
        assert float(noise.var()) == pytest.approx((width / 2 * 2**-2) ** 2 / 3, rel=0.03)
        assert torch.equal(node.eval()(x), node.inner(x))
        assert node.penalty().item() == pytest.approx(2 * 1e-7)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_pact_forward_and_gradient(bits):
    x = torch.randn(50, 6, dtype=torch.float64, requires_grad=True)
    lift, task = Pact(bits=bits, clip=1.0), Task(nn.Sequential(nn.Linear(6, 6), nn.ReLU()).double(), "mse")
    layer = lift.project(lift.lift(task)).model[1]
    seed = torch.randn_like(x)
    value = layer(x)
    top = 2**bits - 1
    wanted = [[round(min(max(v, 0.0), 1.0) * top) / top for v in row] for row in x.tolist()]
    assert torch.allclose(value, torch.tensor(wanted, dtype=torch.float64))
    (value * seed).sum().backward()
    assert torch.equal(x.grad, seed * ((x > 0) & (x < 1)))
    (alpha,) = layer.parameters()
    assert alpha.grad.item() == pytest.approx(float(seed[x >= 1].sum()))


def test_quantized_has_both_ends_and_a_gradient_of_one():
    lift, task = Pact(bits=2), Task(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), "mse")
    layer = lift.project(lift.lift(task)).model[1]
    x = torch.linspace(-20, 20, 101, requires_grad=True)
    value = layer(x)
    assert torch.allclose(value.unique(), torch.tensor([-1, -1 / 3, 1 / 3, 1]))
    value.sum().backward()
    assert torch.allclose(x.grad, 1 - torch.tanh(x).square(), atol=1e-6)


def test_units_have_precisions_of_their_own_and_the_file_keeps_them(tmp_path):
    recipe = ActivationPrecision(granularity="unit", strength=1e-3)
    result = tl.fit(model(), batch(), recipe=recipe, epochs=4, batch_size=16, progress=False)
    layers = [m for m in result.model.modules() if type(m).__name__ == "GridActivation"]
    assert [tuple(m.bits.shape) for m in layers] == [(8,)] * 4
    assert all(int(m.bits.min()) >= 1 and int(m.bits.max()) <= 16 for m in layers)
    tl.deploy.save(result.model, tmp_path / "m.tl")
    again = tl.deploy.load(tmp_path / "m.tl")
    assert torch.equal(again(batch()[0]), result.model(batch()[0]))


def test_what_has_no_range_or_no_data_raises():
    with pytest.raises(TorchliftError, match="is not a ReLU, ReLU6, sigmoid or tanh"):
        ActivationPrecision().lift(Task(nn.Sequential(nn.Linear(4, 3), nn.GELU())))
    with pytest.raises(NeedsFitError, match="reads the shapes of activations from data"):
        ActivationPrecision(granularity="unit").lift(Task(model()))
    for make in (lambda: ActivationPrecision(clip=0.0), lambda: Pact(clip=-1.0), lambda: Pact(bits=0)):
        with pytest.raises(TorchliftError, match=r"clip is|bits is"):
            make()
    with pytest.raises(TorchliftError, match="granularity 'channel'"):
        ActivationPrecision(granularity="channel")
