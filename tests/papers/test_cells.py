"""Finished cells are read, new ones go where --jobs and --executor say."""

import json
from concurrent.futures import Future
from functools import partial

import pytest

from papers.common.cells import Cells
from torchlift.experiments.executors import using


class Inline:
    """An executor that runs a job at once and counts it."""

    def __init__(self):
        self.jobs = 0

    def submit(self, function, payload):
        self.jobs += 1
        future = Future()
        future.set_result(function(payload))
        return future


def squared(number):
    return {"square": number**2}


def test_new_cells_go_to_the_executor_and_finished_ones_do_not(tmp_path):
    path, engine = tmp_path / "cells.jsonl", Inline()
    Cells(path).get("2", partial(squared, 2))
    jobs = {str(number): partial(squared, number) for number in (3, 2, 4)}
    with using(engine):
        assert Cells(path).all(jobs) == [{"square": 9}, {"square": 4}, {"square": 16}]
        assert Cells(path).all(jobs) == [{"square": 9}, {"square": 4}, {"square": 16}]
    assert engine.jobs == 2
    assert sorted(json.loads(line)["key"] for line in path.read_text().splitlines()) == ["2", "3", "4"]
    assert list(tmp_path.iterdir()) == [path]


def test_cells_are_written_down_one_by_one_without_an_executor(tmp_path):
    def fails():
        raise ZeroDivisionError

    cells = Cells(tmp_path / "cells.jsonl")
    with pytest.raises(ZeroDivisionError):
        cells.all({"1": partial(squared, 1), "0": fails})
    assert list(Cells(tmp_path / "cells.jsonl").values) == ["1"]
