"""What is trained is the model that was given: read whole and compared with it, or an error."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchlift import lifted
from torchlift.errors import DataError, TorchliftError
from torchlift.methods.lifted import Network, activations


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(n: int = 24) -> tuple[Tensor, Tensor]:
    x = randn(n, 4)
    return x, x[:, :3].argmax(1)


def train(model: nn.Module, pair: object = None, **options: object) -> None:
    chosen = {"epochs": 1, "progress": False} | options
    lifted.train(model, data() if pair is None else pair, **chosen)  # type: ignore[arg-type]


def test_a_reused_activation_is_read_twice() -> None:
    act = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 5), act, nn.Linear(5, 3)).double()
    network, x = Network.of(model, "bregman", 1.0, "cross_entropy"), data()[0]
    assert [type(p.activation).__name__ for p in network.penalties[:2]] == ["Clip", "Clip"]
    assert torch.allclose(network.output(network.states(x)[-1]), model(x))


class Doubled(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * input)


class Noisy(nn.ReLU):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 0.1


def plus_one(module: nn.Module, args: object, out: Tensor) -> Tensor:
    return out + 1


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    model[1].register_forward_hook(plus_one)
    return model


def shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(4, 3))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


UNREADABLE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "own forward": (
        lambda: Doubled(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)),
        "operation .mul. has no block",
    ),
    "inner forward": (lambda: nn.Sequential(nn.Linear(4, 5), Noisy(), nn.Linear(5, 3)), "1 .its own forward"),
    "hooks": (hooked, r"differ by .* look at 1 \(hooks\)"),
    "shared": (shared, "'0' is used twice"),
    "tied": (tied, "'2' shares its weight with '0'"),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Linear(5, 3)),
        "remove the parametrization",
    ),
    "half": (lambda: nn.Sequential(nn.Linear(4, 3)).half(), r"in torch.float16; call model.float\(\)"),
    "no weights": (lambda: nn.Sequential(nn.ReLU()), "no weights"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_another_network_is_never_trained(name: str) -> None:
    make, reason = UNREADABLE[name]
    model = make() if name == "half" else make().double()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(TorchliftError, match=reason):
        train(model, method="bcd")
    with pytest.raises(TorchliftError, match=reason):
        lifted.predict(model, data()[0], "lifted")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + torch.relu(self.first(x)))


def test_networks_with_skips_are_compared_too() -> None:
    model = Residual().double()
    train(model, method="unified")
    model.register_forward_hook(plus_one)
    with pytest.raises(TorchliftError, match=r"look at the model \(hooks\)"):
        train(model, method="unified")


@pytest.mark.parametrize("loss", ["bce", "mse"])
def test_whole_numbers_for_one_output_are_values(loss: str) -> None:
    """All-zero labels once became a one-hot of width one, and trained towards 1."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    x = data(40)[0]
    train(model, (x, torch.zeros(40, dtype=torch.long)), loss=loss, epochs=20, tau=5.0, batch_size=10)
    out = model(x).detach()
    assert (torch.sigmoid(out) if loss == "bce" else out).mean() < 0.2


def test_targets_that_the_loss_cannot_mean_raise() -> None:
    one, three = nn.Linear(4, 1).double(), nn.Linear(4, 3).double()
    x = data(8)[0]
    with pytest.raises(DataError, match="cross-entropy over one output"):
        train(nn.Sequential(one), (x, torch.zeros(8, dtype=torch.long)))
    with pytest.raises(DataError, match="are not values of Sigmoid"):
        train(nn.Sequential(one), (x, 3 * torch.ones(8)), loss="bce")
    with pytest.raises(DataError, match="are not values of Softmax"):
        train(nn.Sequential(three), (x, torch.ones(8, 3)))
    with pytest.raises(DataError, match="labels run from 0 to 5"):
        train(nn.Sequential(three), (x, torch.tensor([0, 5, 1, 1, 1, 1, 1, 1])))
    with pytest.raises(DataError, match=r"shape \(8, 2\) do not fit outputs of shape \(8, 3\)"):
        train(nn.Sequential(three), (x, torch.ones(8, 2)), loss="mse")


X, Y = data(8)
BAD = {
    "nan": ((X.where(X < 1, torch.nan), Y), "x holds NaN"),
    "nan targets": ((X, torch.full((8, 3), torch.inf)), "y holds NaN or infinite"),
    "empty": ((X[:0], Y[:0]), "x holds no samples"),
    "unequal": ((X, Y[:5]), "x has 8 samples, y has 5"),
    "no pairs": ([(X,)], "a batch must be a pair"),
    "one tensor": (X, "a batch must be a pair"),
    "a number": (3, "not int"),
    "wrong width": ((X[:, :3], Y), r"does not take inputs of shape \(4, 3\)"),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "bcd") for name in BAD), *((name, "isgm") for name in ("nan", "empty", "unequal"))],
)
def test_bad_data_are_one_line(name: str, method: str) -> None:
    pair, reason = BAD[name]
    with pytest.raises(TorchliftError, match=reason) as caught:
        train(nn.Sequential(nn.Linear(4, 3)).double(), pair, method=method)
    assert "\n" not in str(caught.value)


def test_a_generator_that_is_used_up_raises() -> None:
    model, once = nn.Sequential(nn.Linear(4, 3)).double(), (pair for pair in [data(), data()])
    train(model, once, method="bcd")
    with pytest.raises(DataError, match="used up after one pass"):
        train(model, once, method="bcd")


def test_numpy_pairs_are_data() -> None:
    x, y = data()
    models = [nn.Sequential(nn.Linear(4, 3)).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, pair in zip(models, [(x, y), (x.numpy(), y.numpy())], strict=True):
        train(model, pair, method="bcd")
    assert torch.equal(*(next(model.parameters()) for model in models))


@torch.no_grad()
def entropy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float(nn.functional.cross_entropy(model(x), y))


def images(n: int = 20) -> Tensor:
    return randn(n, 1, 6, 6, seed=4)


@pytest.mark.parametrize("method", ["isgm", "bcd"])
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_convolutions_as_outputs(method: str, loss: str) -> None:
    """A label for every pixel, or an image for an image."""
    torch.manual_seed(0)
    outputs = 2 if loss == "cross_entropy" else 1
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, outputs, 1)).double()
    x = images()
    smooth = nn.functional.avg_pool2d(x, 3, 1, 1)
    y = (smooth[:, 0] > 0).long() if loss == "cross_entropy" else smooth
    measure = nn.functional.cross_entropy if loss == "cross_entropy" else nn.functional.mse_loss
    before = float(measure(model(x), y).detach())
    options = {"tau": 0.5, "batch_size": 5} if method == "isgm" else {}
    train(model, (x, y), method=method, loss=loss, epochs=4, **options)
    assert float(measure(model(x), y).detach()) < 0.9 * before


def test_convolutional_outputs_have_the_loss_of_torch() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 4, 2)).double()
    x = images(5)
    y = torch.randint(4, (5, 3, 3), generator=torch.Generator().manual_seed(1))
    network = Network.of(model, "bregman", 1.0, "cross_entropy")
    loss = network.layer_energies(x, network.states(x), network.targets(y, x))[-1]
    assert torch.isclose(loss, nn.functional.cross_entropy(model(x), y, reduction="sum"))


def test_channel_softmax_inside_a_convolutional_network() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Softmax(1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 2)
    ).double()
    x = images()
    y = (x.mean((1, 2, 3)) > 0).long()
    before = entropy(model, x, y)
    train(model, (x, y), epochs=5, tau=3.0, batch_size=5)
    assert entropy(model, x, y) < before


@pytest.mark.parametrize("channels", [1, 6])
def test_prelu_slopes_are_used_and_learned(channels: int) -> None:
    x = randn(60, 3)
    y = nn.functional.leaky_relu(x @ randn(3, 4, seed=2), 0.6) @ randn(4, 2, seed=3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.PReLU(channels), nn.Linear(6, 2)).double()
    network = Network.of(model, "bregman", 1.0, "mse")
    assert torch.allclose(network.output(network.states(x)[-1]), model(x))
    history = lifted.train(
        model, (x, y), method="bcd", loss="mse", epochs=5, learn_slopes=True, progress=False
    ).history
    slopes = model[1].get_parameter("weight")
    assert float((slopes - 0.25).abs().min().detach()) > 0
    assert slopes.requires_grad
    objectives = [row["objective"] for row in history]
    assert all(b <= a * 1.001 for a, b in itertools.pairwise(objectives))


def test_prelu_in_images_and_its_errors() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(4), nn.Flatten(), nn.Linear(64, 2)).double()
    model[1].weight.data = torch.tensor([0.1, 0.3, 0.5, 0.9], dtype=torch.float64)
    x = images()
    y = (x.mean((1, 2, 3)) > 0).long()
    before = entropy(model, x, y)
    train(model, (x, y), method="bcd", epochs=2)
    assert entropy(model, x, y) < 0.7 * before
    model[1].weight.data[0] = -0.5
    with pytest.raises(ValueError, match=r"slopes must lie in \(0, 1\], got -0.5"):
        train(model, (x, y))


def test_learned_slopes_reach_activations_of_the_table() -> None:
    act = lifted.Act("leaky_relu", slope=0.05)
    train(
        nn.Sequential(nn.Linear(4, 5), act, nn.Linear(5, 3)).double(),
        method="bcd",
        learn_slopes=True,
        epochs=2,
    )
    assert act.activation != activations.LeakyReLU(0.05)


@pytest.mark.parametrize("method", ["isgm", "bcd", "contrastive"])
def test_max_pooling_trains(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    ).double()
    x = images(40)
    y = (x.amax((1, 2, 3)) > 2).long()
    before = entropy(model, x, y)
    options = {"isgm": {"tau": 1.0}, "contrastive": {"lr": 2e-2}, "bcd": {"mu": 20.0, "rho": 0.1}}
    batches = {} if method == "bcd" else {"batch_size": 10}
    train(model, (x, y), method=method, epochs=6, **options[method], **batches)
    assert entropy(model, x, y) < 0.85 * before


def test_frozen_maxima_are_linear_with_an_adjoint_and_a_norm() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), nn.Conv2d(2, 3, 2)
    ).double()
    network, x = Network.of(model, "bregman", 1.0, "mse"), images(3)
    states, layer = network.states(x), network.layers[1]
    forward, adjoint = layer.frozen(states[0])
    assert torch.allclose(forward(states[0]), model(x))
    d = randn(*states[0].shape, seed=5)
    out = forward(d) - forward(torch.zeros_like(d))
    other = randn(*out.shape, seed=6)
    assert torch.isclose((out * other).sum(), (d * adjoint(other)).sum())
    for row in range(3):
        alone, _ = layer.frozen(states[0][row : row + 1])
        jacobian = torch.func.jacrev(alone)(d[:1]).reshape(out[0].numel(), d[0].numel())
        assert float(torch.linalg.matrix_norm(jacobian, 2)) <= layer.norm_of(states[0])


def test_grouped_convolutions_raise_in_exact_blocks_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    ).double()
    x = randn(40, 2, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    before = entropy(model, x, y)
    train(model, (x, y), method="unified", epochs=10, lr=1e-2, batch_size=10)
    assert entropy(model, x, y) < 0.9 * before
    with pytest.raises(TorchliftError, match="'0' is a convolution in 2 groups"):
        train(model, (x, y), method="bcd")
