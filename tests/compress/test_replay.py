"""Passes that start at a boundary give what passes from the input give, and run fewer layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.compress.replay import Replay, blank, replaying


class Residual(nn.Module):
    """Blocks whose output is written to in place, and a table that all of them read."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Linear(6, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(4))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.shared = nn.ReLU()
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        shift = self.table(x[:, :6])
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = layer(self.shared(norm(x)))
            y += x
            x = y + 0.1 * shift
        return self.head(x)


class Chain(nn.Module):
    """Layers each of which reads the one before it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu_(layer(x))
        return self.last(x)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
    return nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))


NETWORKS: dict[str, Any] = {"chain": Chain, "residual": Residual, "encoder": encoder}


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name]().eval()


def inputs(name: str) -> Tensor:
    shape = (96, 5, 8) if name == "encoder" else (96, 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", [{"bits": 3}, {"ratio": 0.3}], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_passes_from_the_input(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tl.compress(network(name), inputs(name), progress=False, **options).model
    monkeypatch.setattr(Replay, "advance", lambda self, modules: None)
    whole = tl.compress(network(name), inputs(name), progress=False, **options).model
    for a, b in zip(short.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


def test_layers_before_a_boundary_run_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    for replay in (True, False):
        model, count = network("chain"), [0]
        original = nn.Linear.forward

        def counting(self: nn.Linear, x: Tensor, count: list[int] = count, run: Any = original) -> Tensor:
            count[0] += 1
            return run(self, x)

        with monkeypatch.context() as patch:
            patch.setattr(nn.Linear, "forward", counting)
            if not replay:
                patch.setattr(Replay, "advance", lambda self, modules: None)
            tl.compress(model, inputs("chain").repeat(6, 1), sparsity=0.3, progress=False)
        calls.append(count[0])
    assert calls[0] < 0.75 * calls[1]


def test_a_boundary_is_all_that_what_follows_depends_on() -> None:
    x = inputs("chain")[:2]
    chain = Replay.of(network("chain"), network("chain"), (x,), 96)
    assert chain.advance(["layers.3"]) == "layers.2"
    residual = Replay.of(network("residual"), network("residual"), (x,), 96)
    assert not any(residual.is_boundary(f"layers.{k}") for k in range(4))
    assert residual.advance(["layers.2"]) is None
    assert "shared" not in residual.spans  # it runs four times
    tight = Replay.of(network("chain"), network("chain"), (x,), 2**40)
    assert tight.advance(["layers.3"]) is None


def test_a_shuffling_loader_starts_at_the_input() -> None:
    """Batches are told apart by their numbers and by what they hold."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(inputs("chain"))
    loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
    small = tl.compress(network("chain"), loader, bits=6, progress=False)
    ordered = tl.compress(network("chain"), inputs("chain"), bits=6, progress=False)
    assert small.error == pytest.approx(ordered.error, rel=0.3)


def test_what_was_skipped_leaves_no_trace() -> None:
    model, x = network("chain"), inputs("chain")
    with replaying(model, {"layers.0": blank(x)}):
        assert bool(model(x).isnan().all())
    assert bool(model(x).isfinite().all())
    assert "forward" not in vars(model.get_submodule("layers.0"))
