"""``--device`` reaches every training of the thesis' entries, and the loops of their own stay on it.

No other device is here: ``meta`` stands in, with zeros for what is read back.
"""

from inspect import signature

import pytest
import torch
from entry_modules import module_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from papers.embedding_principle import figure1
from papers.savarese_thesis import pruning_runs, short_trainings, shortest_paths
from torchlift.cli.reproduction import find_entries, imported
from torchlift.data import Splits
from torchlift.errors import TorchliftError

aten = torch.ops.aten
ENTRIES = (
    "ticket_search", "imp_rates", "sequential_tickets", "mask_settings", "supermasks", "conv6_tickets",
    "one_shot_pruning", "layer_patterns", "smol_cifar10", "smol_balance", "smol_activations",
    "layer_precisions", "shuffled_precisions", "smol_mobile", "sharing_cifar10", "sharing_cutout", "folding",
    "sharing_cifar100", "smol_dcgan", "smol_translation", "table2", "table3", "figure2", "figure4",
    "complexity", "at_its_best", "depth_data", "depth_dependence", "depth_norms", "depth_pays",
    "depth_plateaus", "depth_pruning", "one_shot_resnet", "one_shot_vit",
)  # fmt: skip
LOOPS = {"figure1", "shortest_paths", "deep_paths", "optimizers", "optimizer_tuning", "separability"}
"""Entries with loops of their own, which are run on ``meta`` below."""


COPIES = (aten._to_copy.default, aten.copy_.default, aten.index.Tensor)


class ReadBack(TorchDispatchMode):
    """Numbers and copies that are read from ``meta`` are ones and zeros; nothing else may mix devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0
        if func is aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor) and one.dim()]
        assert func in COPIES or len({one.device for one in tensors}) < 2, func
        return func(*args, **kwargs)


def tiny(name, folder=None, seed=0):
    x, y = torch.rand(24, 3, 32, 32), torch.arange(24) % 10
    return Splits((x[:16], y[:16]), (x[:4], y[:4]), (x[16:], y[16:]), "classification")


def pictures(folder=None):
    x, y = torch.randint(256, (48, 3, 32, 32), dtype=torch.uint8), torch.arange(48) % 10
    return (x, y), (x[:16], y[:16])


def digits(folder=None):
    (x, y), test = pictures()
    return (x[:, 0, :28, :28], y), (test[0][:, 0, :28, :28], test[1])


def sentences(folder=None):
    return [[("ein Hund", "a dog")] * 8] * 3


FAKES = {
    "load": tiny, "cifar10": pictures, "mnist": digits, "fashion_mnist": digits, "multi30k": sentences,
}  # fmt: skip


def test_every_entry_that_takes_a_device_is_tried_on_one():
    takers = {
        name.replace("-", "_")
        for name, entry in find_entries().items()
        if "device" in signature(imported(entry.file).run).parameters
    }
    assert takers == set(ENTRIES) | LOOPS


@pytest.mark.parametrize("name", ENTRIES)
def test_a_device_reaches_fit(name, monkeypatch, tmp_path):
    monkeypatch.setattr(pruning_runs, "load", tiny)
    for data, fake in FAKES.items():
        if hasattr(module_of(name), data):
            monkeypatch.setattr(module_of(name), data, fake)
    with pytest.raises(TorchliftError, match="device 'nowhere' cannot be used"):
        module_of(name).run(tmp_path, seeds=1, epochs=1, images=16, device="nowhere")


def test_mixed_devices_are_noticed():
    layer = torch.nn.Conv2d(3, 4, 3, device="meta")
    with ReadBack(), pytest.raises(AssertionError, match="convolution"):
        layer(torch.rand(1, 3, 8, 8))


def test_short_trainings_stay_on_their_device():
    x, y = torch.rand(8, 3, 32, 32), torch.arange(8)
    bench = short_trainings.Workload(
        "images", short_trainings.small_cnn, (x, y), (x, y), (x, y), 4, 2, short_trainings.error, 90.0, 5e-4,
        augment=True, device="meta",
    )  # fmt: skip
    with ReadBack():
        assert short_trainings.trained(bench, torch.optim.Adam, 0) <= 90.0


def test_full_batch_descent_stays_on_its_device():
    with ReadBack():
        weights = figure1.stacked([4, 5, 3], 0.1, range(2), "meta")
        data = torch.rand(6, 4, device="meta"), torch.rand(6, 3, device="meta")
        losses, accuracies = figure1.descended(weights, data, 0.1, 2)
    assert (len(losses), len(accuracies[0])) == (2, 2)


def test_shortest_paths_stay_on_their_device():
    size = shortest_paths.Size(9, 4, 3, 8, 4, 5, 4, "meta")
    with ReadBack():
        assert len(shortest_paths.trained("cnn", 0, size)["phases"]) == shortest_paths.PHASES
