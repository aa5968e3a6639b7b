"""The part of PyTorch's own optimizer tests that is shipped with it, run on the optimizers here.

`torch.testing._internal.common_optimizers` describes optimizers, their error inputs and their flag
combinations. The test bodies themselves are not part of the wheel, so the comparisons are written out here.
"""

import functools
import types
import unittest
import warnings

import pytest
import torch

from torchlift.optim import AdamEps, AvaGrad, DelayedAdam

pytest.importorskip("expecttest", reason="torch's testing helpers import it")
INPUTS = [
    {},
    {"lr": 0.01},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "maximize": True},
    {"weight_decay": 0.1, "decoupled": True},
    {"lr": torch.tensor(0.01), "capturable": True},
]
every = pytest.mark.parametrize("kind", [AvaGrad, DelayedAdam, AdamEps])


@functools.cache
def helpers() -> types.ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_optimizers
    return common_optimizers


def described(kind: type[torch.optim.Optimizer]) -> object:
    return helpers().OptimizerInfo(
        kind,
        optim_inputs_func=lambda device, dtype=None: [
            helpers().OptimizerInput(params=None, kwargs=dict(kwargs), desc=str(kwargs)) for kwargs in INPUTS
        ],
        optim_error_inputs_func=helpers().get_error_inputs_for_all_optims,
        supported_impls=("foreach", "differentiable"),
        supports_sparse=True,
        has_capturable_arg=True,
    )


def adam_errors_that_concern_all() -> list:
    """Adam's error inputs but for tensor betas and tensor rates with foreach, which torch alone has."""
    return [
        case
        for case in helpers().optim_error_inputs_func_adam("cpu", torch.float32)
        if "Tensor" not in case.error_regex
    ]


@every
@pytest.mark.filterwarnings("default")
def test_error_inputs(kind):
    cases = described(kind).optim_error_inputs_func("cpu", torch.float32) + adam_errors_that_concern_all()
    assert len(cases) >= 8
    for case in cases:
        error_input = case.optimizer_error_input
        params = [torch.ones(2, 2)] if error_input.params is None else error_input.params
        context = pytest.warns if issubclass(case.error_type, Warning) else pytest.raises
        with context(case.error_type, match=case.error_regex):
            kind(params, **error_input.kwargs)


@every
def test_every_flag_combination_takes_the_same_steps(kind):
    """TensorTracker holds the states of the plain loop, and each other implementation must meet them."""
    info = described(kind)
    configs = helpers()._get_optim_inputs_including_global_cliquey_kwargs(
        "cuda", torch.float64, info
    )  # for the sake of foreach
    assert len(configs) == 3 * len(INPUTS)
    for reference, *others in (configs[i : i + 3] for i in range(0, len(configs), 3)):
        for other in others:
            tracker = helpers().TensorTracker()
            follow(kind, reference, tracker.add)
            follow(kind, other, lambda tensor, tracker=tracker: tracker.pop_check_set(tensor, Equal()))
            assert tracker.all_popped()


def follow(kind, config, visit) -> None:
    params = [torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).clone(), torch.ones(3).double()]
    optimizer = kind(params, **config.kwargs)
    for step in range(7):
        for w in params:
            w.grad = (step + 1) * w.detach() + 0.1
        optimizer.step()
        for w in params:
            visit(w)
            for value in optimizer.state[w].values():
                visit(value)


class Equal(unittest.TestCase):
    """What TensorTracker asks of a test case."""

    def assertEqual(self, first, second, msg=None, **kwargs) -> None:
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)
