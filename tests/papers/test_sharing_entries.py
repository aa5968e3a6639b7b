"""The reproduction entries of soft sharing, tiny."""

import dataclasses

import torch
from entry_modules import module_of

from papers.savarese_thesis import sharing_cifar10, sharing_runs, shortest_paths
from papers.savarese_thesis.sharing_cifar10 import Net, SharingPlan
from torchlift.data import Splits
from torchlift.report import reproduction_page


def images(name, folder=None, seed=0):
    del name, folder, seed
    generator = torch.Generator().manual_seed(0)

    def drawn(n):
        x = torch.rand(n, 3, 32, 32, generator=generator)
        return x, torch.randint(10, (n,), generator=generator)

    return Splits(drawn(16), drawn(8), drawn(8), "classification")


def shown(result):
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    titles = [section.title for section in reproduction_page(result).sections]
    assert "Similarities" in titles
    return result


def test_sharing_is_measured_at_equal_parameters_and_at_equal_flops(monkeypatch, tmp_path):
    """One real run; the others of the table are its row, at costs of their own."""
    tiny = SharingPlan(
        {"WRN-10-1": Net(10, 1), "SWRN-16-1-1": Net(16, 1, 1, thesis=4.0)}, "WRN-10-1", "SWRN-16-1-1",
        16, 8, 1.0, 8, (0.1, 0.01), "cosine",
    )  # fmt: skip
    monkeypatch.setattr(sharing_cifar10, "SMALL", tiny)
    monkeypatch.setattr(sharing_cifar10, "load", images)
    net, calls = tiny.nets["SWRN-16-1-1"], []
    real = sharing_cifar10.measured(
        tiny, net, sharing_cifar10.halved_images(tiny, None), 0.1, 0, 1.0, tmp_path / "r"
    )
    assert real["parameters"] < real["operations"]

    def measured(plan, net, data, rate, seed, epochs, out):
        calls.append((net.depth, rate, seed, epochs))
        return real | {"flops": net.depth * epochs, "valid": 50.0 + rate}

    monkeypatch.setattr(sharing_cifar10, "measured", measured)
    result = shown(module_of("sharing_cifar10").run(tmp_path, seeds=2, stand_in=True))
    rows = {row["network"]: row for row in result["rows"]}
    assert rows["SWRN-16-1-1"]["thesis error"] == 4.0
    assert {row["rate"] for row in rows.values()} == {0.01}  # the least error on validation data
    assert rows["WRN-10-1, FLOPs of SWRN-16-1-1"]["cost"] == rows["SWRN-16-1-1"]["cost"] == 1.6
    assert {len(matrix["values"]) for matrix in result["matrices"]} == {2}
    tuned = [rate for _, rate, seed, _ in calls if seed == sharing_cifar10.TUNING_SEED]
    assert sorted(tuned) == [0.01, 0.01, 0.1, 0.1]
    count = len(calls)
    sharing_cifar10.run(tmp_path, seeds=2, stand_in=True)
    assert len(calls) == count  # finished runs are read


def test_a_small_table_has_few_of_the_large_networks(monkeypatch, tmp_path):
    numbers = {"test": 1.0, "parameters": 2, "file bytes": 3, "operations": 4, "similarity": []}
    monkeypatch.setattr(sharing_runs, "measured", lambda *_: numbers)
    nets = {name: Net(10, 1) for name in "abcde"}
    whole = sharing_runs.table(
        "t", "T", "f", nets, images(""), sharing_runs.Order(tmp_path, 1, None, None, None)
    )
    assert [row["network"] for row in whole["rows"]] == list(nets)
    assert "partial" not in whole
    little = sharing_runs.Order(tmp_path, 1, 1.0, 4, None)
    small = sharing_runs.table("t", "T", "f", nets, images(""), little)
    assert [row["network"] for row in small["rows"]] == ["c"]
    assert small["partial"] == "without a; b; d; e"


def test_shortest_paths_have_all_phases_folded_networks_and_similarities(monkeypatch, tmp_path):
    tiny = dataclasses.replace(shortest_paths.SMALL, layers=3, width=4, samples=16, held_out=8, epochs=1)
    monkeypatch.setattr(shortest_paths, "SMALL", tiny)
    result = shown(module_of("shortest_paths").run(tmp_path, seeds=2, stand_in=True))
    assert sum(column.startswith("distance") for column in result["columns"]) == 5
    rows = {row["network"]: row for row in result["rows"]}
    assert set(rows) == {name + end for name in shortest_paths.ARMS for end in ("", ", folded")} - {
        "cnn, folded"
    }
    assert rows["one template, folded"]["parameters"]["mean"] < rows["cnn"]["parameters"]["mean"]
    assert all(len(curve["x"]) == 5 for curve in result["curves"])
