"""Runs on other processes: the same numbers, whoever dies."""

import concurrent.futures
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import torchlift as tl
from experiments.small import DATA, SETTINGS, Broken, Fatal, model, numbers
from torchlift.errors import TorchliftError
from torchlift.experiments.executors import Packer, Payload, run_all, unpacked


def compared(executor: object, marker: Path, out: Path, **more: object) -> tl.Comparison:
    recipes = {"fatal": Fatal(str(marker)), "smol": tl.recipes.Smol(bits=4.0)}
    return tl.compare(
        model, *DATA, recipes=recipes, seeds=4, budget=2, executor=executor, out=out, **SETTINGS | more
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[float, float]]]:
    """The twelve runs in this process, undisturbed."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "marker").write_text("no dying")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return numbers(compared(None, folder / "marker", folder / "out"))
    finally:
        torch.set_num_threads(threads)


def test_a_killed_process_changes_no_number(
    tmp_path: Path, alone: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with caplog.at_level(logging.WARNING, "torchlift"):
        actual = numbers(compared("processes", tmp_path / "marker", tmp_path / "out"))
    assert (tmp_path / "marker").exists(), "a worker was killed"
    assert "submitted again" in caplog.text
    assert [len(runs) for runs in actual.values()] == [4, 4, 4]
    assert actual == alone


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_killing_one_of_two_dask_workers_changes_no_number(tmp_path: Path, alone: object) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(
            silence_logs=logging.CRITICAL, local_directory=str(tmp_path / "dask"), **options
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        actual = numbers(compared(client, tmp_path / "marker", tmp_path / "out"))
    assert (tmp_path / "marker").exists(), "a worker was killed"
    assert actual == alone


def small(executor: object, recipes: object = (), seeds: int = 1) -> tl.Comparison:
    return tl.compare(
        model, *DATA, recipes=recipes or {}, seeds=seeds, budget=1, executor=executor, **SETTINGS
    )


def test_submitit_runs_jobs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(timeout_min=2)
    assert numbers(small(executor)) == numbers(small(None))
    with pytest.raises(TorchliftError, match="what is this"):
        small(executor, {"broken": Broken()})


class Recording:
    """Runs a job at once and keeps what it was given."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []

    def submit(
        self, function: Callable[[Payload], bytes], payload: Payload
    ) -> concurrent.futures.Future[bytes]:
        self.payloads.append(payload)
        future = concurrent.futures.Future[bytes]()
        future.set_result(function(payload))
        return future


def total(x: torch.Tensor, y: np.ndarray, number: int) -> float:
    return number * (float(x.sum()) + float(y.sum()))


@pytest.mark.parametrize("rows", [1, 100])
def test_data_of_many_jobs_are_packed_once_and_without_what_they_are_a_part_of(rows: int) -> None:
    """Forty jobs on a row or a hundredth of 40 MB: 4 or 400 kB of it, and a million numbers, not 2 GB."""
    x, y, engine = torch.ones(10_000, 1000)[:rows], np.ones(1_000_000), Recording()
    sums = [(1_000_000.0 + 1000 * rows) * number for number in range(40)]
    assert run_all(partial(total, x, y), range(40), engine) == sums
    payloads = {id(one): one for job, arrays in engine.payloads for one in (job, *arrays.values())}
    assert sum(map(len, payloads.values())) < x.nbytes + y.nbytes + 100_000


def test_a_job_has_each_of_its_arrays_once_and_its_weights_as_they_are() -> None:
    layer, data = torch.nn.Linear(300, 300), torch.rand(300, 300)
    layer.register_buffer("data", data)
    there, again = unpacked(Packer().packed((layer, data)))
    assert there.data is again
    assert torch.equal(again, data)
    assert type(there.weight) is torch.nn.Parameter
    assert torch.equal(there.weight, layer.weight)


def test_a_pool_of_the_users_own_works_and_its_errors_arrive() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert numbers(small(pool, seeds=3)) == numbers(small(None, seeds=3))
        with pytest.raises(KeyError, match="what is this"):
            small(pool, {"broken": Broken()})


@dataclasses.dataclass
class Losing:
    """An engine whose first jobs lose their worker."""

    times: int
    submitted: int = 0

    def submit(self, function, payload):
        self.submitted += 1
        future = concurrent.futures.Future()
        if self.submitted <= self.times:
            future.set_exception(concurrent.futures.BrokenExecutor("gone"))
        else:
            future.set_result(function(payload))
        return future


def test_lost_jobs_are_submitted_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    engine = Losing(2)
    assert numbers(small(engine, seeds=3)) == numbers(small(None, seeds=3))
    assert engine.submitted == 5, "only what was lost is run again"
    with pytest.raises(TorchliftError, match="lost their worker"):
        small(Losing(100))


def test_what_is_no_executor_raises() -> None:
    for wrong in (0, True, "threads", object()):
        with pytest.raises(TorchliftError, match="executor is 'processes', a number, or has submit"):
            small(wrong)
