"""The entries on inversion and imaging, on tiny stand-ins for the data."""

from pathlib import Path

import pytest
import torch
from entry_modules import module_of

from papers.unified_lifting import imaging, inversion_autoencoder, inversion_layer, observing
from papers.unified_lifting.unrolled_training import Sweep, size, train
from torchlift.convex import operators
from torchlift.convex.activations import get as activation
from torchlift.methods.lifted.unified import energy
from torchlift.report import reproduction_page


def squares(folder: str | None, name: str) -> list[torch.Tensor]:
    """Gray images of 40 × 40."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (8, 1, 5, 5), generator=generator).float()
    return list(torch.nn.functional.interpolate(coarse, scale_factor=8)[:, 0].to(torch.uint8))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = torch.stack(squares(None, "")).repeat(10, 1, 1)[:, None, :28, :28]
    pair = digits, torch.zeros(len(digits))
    monkeypatch.setattr(inversion_autoencoder, "mnist", lambda folder: (pair, pair))
    monkeypatch.setattr(inversion_autoencoder, "CODES", (2,))
    monkeypatch.setattr(imaging, "gray", squares)
    few = {name: observing.TASKS[name] for name in ("motion blur", "boxes")}
    monkeypatch.setattr(imaging, "TASKS", few)
    monkeypatch.setattr(imaging, "RATES", (1e-3,))
    monkeypatch.setattr(inversion_layer, "ALPHAS", (1e-2,))


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("inversion_noise", 1.0),
        ("inversion_example", 1.0),
        ("inversion_layer", 0.01),
        ("inversion_autoencoder", 0.01),
        ("imaging", 1e-4),
    ],
)
def test_entries_run(name: str, scale: float, tmp_path: Path) -> None:
    result = module_of(name).run(tmp_path, seeds=1, scale=scale)
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert result["seeds"] == [0]
    assert reproduction_page(result).title
    if name == "inversion_noise":
        on, off = result["rows"]
        assert on["error ~ δ to the"]["mean"] >= 1
        assert on["within the bound"] == on["of"]
        assert off["error at the least noise"]["mean"] > 0.01
    if name == "inversion_example":
        for row in result["rows"][:3]:
            assert row["ours"] == pytest.approx(row["source"], abs=2e-4)


def test_filling_keeps_what_is_seen_and_flat_images_flat() -> None:
    x = torch.full((2, 1, 20, 24), 0.3)
    mask = observing.half(tuple(x.shape), torch.Generator().manual_seed(0))
    torch.testing.assert_close(observing.filled(mask.A(x), mask), x)


def test_boxes_are_missing_one_to_a_cell() -> None:
    mask = observing.boxes((1, 1, 64, 96), torch.Generator().manual_seed(0))
    assert int((~mask.seen).sum()) == 6 * observing.BOX**2


def test_conjugate_gradients_sharpen() -> None:
    x = squares(None, "")[0][None, None].float() / 255
    blur = operators.Blur(operators.gaussian_kernel(1.6))
    y = blur.A(x)
    assert (observing.sharpened(y, blur) - x).norm() < 0.7 * (y - x).norm()


@pytest.mark.parametrize("name", list(observing.TASKS))
def test_a_sweep_lowers_the_energy(name: str) -> None:
    """States after two rounds have less energy than those of the forward pass, which is the loss alone."""
    torch.manual_seed(0)
    task, generator = observing.TASKS[name], torch.Generator().manual_seed(1)
    x = torch.stack(squares(None, "")[:2])[:, None, :32, :32].float() / 255
    net = task.network(depth=3)
    y, net.operator = task.observe(x, generator)
    linear, sweep = activation("linear"), Sweep(2)
    with torch.no_grad():
        before = float(energy(net, y, x, net.states(y), 1.0, linear).sum())
        after = float(energy(net, y, x, sweep.states(net, y, x, linear), 1.0, linear).sum())
    assert after < before


def test_the_bound_is_the_norm_of_the_map() -> None:
    """Power iteration against singular values of the Jacobian of all pre-activations in all states."""
    torch.manual_seed(0)
    net = observing.TASKS["denoising"].network(depth=2).double()
    y = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        z = [state.double() for state in net.states(y)]
        shapes = [state.shape for state in z]

        def flat(vector: torch.Tensor) -> torch.Tensor:
            parts = vector.split([s.numel() for s in shapes])
            given = [p.reshape(s) for p, s in zip(parts, shapes, strict=True)]
            return torch.cat([v.flatten() for v in net.preactivations(y, given)])

        at = torch.cat([state.flatten() for state in z])
        jacobian = torch.stack([flat(at + e) - flat(at) for e in torch.eye(len(at), dtype=at.dtype)])
    want = float(torch.linalg.matrix_norm(jacobian, 2)) ** 2
    assert size(net, y, z, [1.0, 1.0, 1.0], steps=200) == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize("method", ["lifted", "backprop"])
def test_training_improves_a_network(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps by a clock that ticks once a look."""
    ticks = iter(range(100))
    monkeypatch.setattr("papers.unified_lifting.unrolled_training.time.process_time", lambda: next(ticks))
    task, images = observing.TASKS["denoising"], squares(None, "")
    things = imaging.seen(task, images[:2])
    torch.manual_seed(0)
    before = imaging.restored(task, task.network(), things)["psnr"]
    net, steps = train(task, method, images, 12.0, 3e-3, 0)
    after = imaging.restored(task, net, things)["psnr"]
    assert steps == 12 - 1
    assert sum(after) > sum(before)
