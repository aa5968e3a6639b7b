"""The entries on inversion and imaging, on tiny stand-ins for the data."""

from pathlib import Path

import pytest
import torch
from entry_modules import module_of

from papers.unified_lifting import imaging, inversion_autoencoder, inversion_layer, observing
from papers.unified_lifting.unrolled_training import train
from torchlift.convex import operators
from torchlift.methods.lifted.nudge import NudgedNetwork
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
    ("name", "epochs"),
    [
        ("inversion_noise", None),
        ("inversion_example", None),
        ("inversion_layer", 0.08),
        ("inversion_autoencoder", 0.06),
        ("imaging", 0.06),
    ],
)
def test_entries_run(name: str, epochs: float | None, tmp_path: Path) -> None:
    result = module_of(name).run(tmp_path, seeds=1, epochs=epochs, images=2 if name == "imaging" else 40)
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert result["seeds"] == [0]
    assert reproduction_page(result).title
    if name == "inversion_layer":
        pages = list(tmp_path.glob("inversion-layer-*.html"))
        assert len(pages) == len(result["rows"]) == len(result["curves"])
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
def test_one_pass_gradients_of_unrolled_networks_tend_to_those_of_back_propagation(name: str) -> None:
    torch.manual_seed(0)
    task, generator = observing.TASKS[name], torch.Generator().manual_seed(1)
    x = torch.stack(squares(None, "")[:2])[:, None, :32, :32].double() / 255
    net = task.network(depth=3).double()
    y, net.operator = task.observe(x, generator)

    def gradients(output: torch.Tensor) -> torch.Tensor:
        loss = 0.5 * (output - x).square().sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])

    exact = gradients(net(y))
    near, far = (gradients(NudgedNetwork(net)(y, [step] * 3)) for step in (1e-6, 0.3))
    assert (near - exact).norm() < 0.02 * exact.norm()
    assert (far - exact).norm() > (near - exact).norm()


@pytest.mark.parametrize("method", ["lifted", "backprop"])
def test_training_improves_a_network(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps by a clock that ticks once a look."""
    ticks = iter(range(100))
    monkeypatch.setattr("papers.unified_lifting.unrolled_training.time.process_time", lambda: next(ticks))
    task, images = observing.TASKS["denoising"], squares(None, "")
    things = imaging.seen(task, images[:2])
    torch.manual_seed(0)
    before = observing.quality(imaging.by_network(task, task.network(), things))["psnr"]
    net, steps, _ = train(task, method, images, 12.0, 3e-3, 0)
    after = observing.quality(imaging.by_network(task, net, things))["psnr"]
    assert steps == 12 - 1
    assert sum(after) > sum(before)
