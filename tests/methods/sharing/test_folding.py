"""Folding: one stored weight, several uses; exact where coefficients are parallel."""

import copy
import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from torchlift.core import nodes, record_pruned
from torchlift.errors import OrderError
from torchlift.lifts import Templates


def storages(model: nn.Module) -> int:
    """Bytes of weights in memory: every storage once."""
    sizes = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    return sum(sizes.values())


def lifted_with(alpha, task, **options):
    """The task, lifted, its one group given these coefficients."""
    lift = Templates(len(alpha[0]), **options)
    problem = lift.lift(task).eval()
    (bank,) = (node for _, node in nodes(problem) if hasattr(node, "templates"))
    with torch.no_grad():
        bank.alpha.copy_(torch.tensor(alpha, dtype=torch.float64))
    return lift, problem


def grid(layers: int = 5) -> tl.Task:
    model = tl.models.GridNet(layers, 4)
    for block in model.blocks:
        nn.init.uniform_(block.bn.running_var, 0.5, 1.5)
        nn.init.normal_(block.bn.running_mean)
    return tl.Task(model, "bce").eval()


PARALLEL = [[1.0, 0.5], [-2.0, -1.0], [0.3, 0.15], [1.0, -1.0], [1.0, -1.0]]
"""Layers 0 to 2 parallel, one of them against the others; 3 and 4 equal."""


def test_parallel_and_antiparallel_layers_fold_exactly():
    lift, problem = lifted_with(PARALLEL, grid(), fold=1.0)
    small, x = lift.project(problem).eval(), torch.randn(3, 2, 7, 7)
    torch.testing.assert_close(small.predict(x), problem.predict(x), atol=1e-5, rtol=1e-5)
    convs = [block.conv for block in small.model.blocks]
    assert [type(conv).__name__ for conv in convs] == ["ScaledUse", "Conv2d", "ScaledUse", "Conv2d", "Conv2d"]
    assert convs[0].scale.item() == pytest.approx(-0.5)
    assert convs[2].scale.item() == pytest.approx(-0.15)
    assert convs[0].inner.weight is convs[1].weight is convs[2].inner.weight
    assert convs[3].weight is convs[4].weight
    assert convs[1].weight is not convs[3].weight


@settings(deadline=None, max_examples=20)
@given(
    scales=st.lists(st.floats(0.1, 3.0).flatmap(lambda c: st.sampled_from([c, -c])), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
)
def test_whatever_the_scales_and_signs_of_parallel_layers_one_weight_serves(scales, seed):
    torch.manual_seed(seed)
    direction = torch.randn(3, dtype=torch.float64)
    task = tl.Task(nn.Sequential(*(nn.Linear(4, 4) for _ in scales)), "mse").double()
    lift, problem = lifted_with([(c * direction).tolist() for c in scales], task, fold=1.0)
    small, x = lift.project(problem), torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(small.predict(x), problem.predict(x))
    assert len({id(p) for name, p in small.named_parameters() if name.endswith("weight")}) == 1
    assert max(row.error for row in lift.folds(problem)) < 1e-7


def test_the_account_of_a_fold():
    lift, problem = lifted_with(PARALLEL, grid(), fold=1.0)
    rows = lift.folds(problem)
    assert [row.layer for row in rows] == [f"blocks.{n}.conv.weight" for n in range(5)]
    assert [row.stored[7] for row in rows] == ["1", "1", "1", "3", "3"]
    assert [row.scale for row in rows] == pytest.approx([-0.5, 1.0, -0.15, 1.0, 1.0])
    assert max(row.error for row in rows) < 1e-6


def test_the_account_follows_the_layers_whatever_the_sets():
    lift, problem = lifted_with([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]], grid(4), fold=1.0)
    assert [(row.layer[7], row.stored[7]) for row in lift.folds(problem)] == [
        ("0", "2"),
        ("1", "3"),
        ("2", "2"),
        ("3", "3"),
    ]


def test_a_fold_that_is_not_exact_tells_the_error_of_each_layer():
    """The best one weight for two is that of rank one; what is lost is the second singular value."""
    task = grid(2)
    lift, problem = lifted_with([[1.0, 0.1], [1.0, -0.1]], task, fold=0.9)
    plain = dataclasses.replace(lift, fold=None).project(problem)
    weights = torch.stack([block.conv.weight.detach() for block in plain.model.blocks])
    rows = lift.folds(problem)
    lost = sum((row.error * w.norm()) ** 2 for row, w in zip(rows, weights, strict=True))
    torch.testing.assert_close(lost, torch.linalg.svdvals(weights.flatten(1))[1] ** 2, rtol=1e-4, atol=1e-6)
    assert len({row.stored for row in rows}) == 1
    assert len({row.stored for row in dataclasses.replace(lift, fold=1.0).folds(problem)}) == 2


def test_a_threshold_chosen_after_training_folds_what_another_trained():
    """How to come back is not part of the problem: the same lift with another threshold may project it."""
    lift, problem = lifted_with(PARALLEL, grid())
    assert len({id(p) for p in lift.project(problem).parameters()}) > len(
        {id(p) for p in dataclasses.replace(lift, fold=1.0).project(problem).parameters()}
    )


def test_a_wide_resnet_of_one_template_is_as_small_as_promised(tmp_path):
    """SWRN-28-2-1: five of six weights of a stage are gone, from the file, from memory, from the count."""
    task = tl.Task(tl.models.swrn(28, 2), "cross_entropy").eval()
    lift = Templates(k=1, groups=tl.models.SHARED, fold=1.0)
    problem = lift.lift(task).eval()
    small = lift.project(problem).model.eval()
    plain = dataclasses.replace(lift, fold=None).project(problem).model.eval()
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(small(x), problem.predict(x), atol=1e-5, rtol=1e-5)
    gone = 5 * 9 * (32**2 + 64**2 + 128**2)
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, small)]
    assert counts[0] - counts[1] == gone - 3 * 5  # a scale for every use but the first
    sizes = [tl.deploy.save(model, tmp_path / "model.tl") for model in (plain, small)]
    assert sizes[1] / sizes[0] == pytest.approx(counts[1] / counts[0], rel=0.05)
    assert storages(plain) - storages(small) == pytest.approx(4 * gone, rel=0.001)
    loaded = tl.deploy.load(tmp_path / "model.tl", into=copy.deepcopy(small))
    assert torch.equal(loaded(x), small(x))
    assert storages(loaded) == storages(small)


def test_templates_stored_are_exact_whatever_the_coefficients(tmp_path):
    """SWRN-28-2-2 keeps two templates a stage, and is no larger in the file or in memory than they are."""
    task = tl.Task(tl.models.swrn(28, 2), "cross_entropy").eval()
    lift = Templates(k=2, store="templates")
    problem = lift.lift(task).eval()
    small, x = lift.project(problem).model.eval(), torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(small(x), problem.predict(x), atol=1e-5, rtol=1e-5)
    assert sum(type(module).__name__ == "Blended" for module in small.modules()) == 18
    gone = 4 * 9 * (32**2 + 64**2 + 128**2)
    assert storages(task.model) - storages(small) == pytest.approx(4 * gone, rel=0.001)
    sizes = [tl.deploy.save(model, tmp_path / "model.tl") for model in (task.model, small)]
    assert sizes[0] - sizes[1] > 0.9 * 3.6 * gone  # floats deflate to about nine tenths
    again = tl.deploy.load(tmp_path / "model.tl", into=copy.deepcopy(small))
    assert torch.equal(again(x), small(x))


@pytest.fixture(params=["fold", "templates"])
def shared(request):
    """A small network with shared weights, in both forms, and an input."""
    lift, problem = lifted_with(PARALLEL, grid(), fold=1.0)
    if request.param == "templates":
        lift = dataclasses.replace(lift, fold=None, store="templates")
    return lift.project(problem).model.eval(), torch.randn(3, 2, 7, 7)


def test_copies_keep_the_sharing(shared):
    model, x = shared
    twin = copy.deepcopy(model)
    assert storages(twin) == storages(model)
    assert torch.equal(twin(x), model(x))
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(1.0)
    assert not torch.equal(twin(x), model(x))


def test_state_dicts_load(shared):
    model, x = shared
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert storages(other) == storages(model)


def test_graphs_keep_the_sharing(shared, tmp_path):
    model, x = shared
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))
    tl.deploy.save(model, tmp_path / "model.tl")
    loaded = tl.deploy.load(tmp_path / "model.tl", into=copy.deepcopy(model))
    torch.testing.assert_close(loaded(x), model(x))
    assert storages(loaded) == storages(model)


@pytest.mark.parametrize("k", [1, 2])
def test_onnx_holds_each_weight_once(k, tmp_path):
    onnx = pytest.importorskip("onnx")
    task = tl.Task(tl.models.GridNet(6, 32), "bce").eval()
    lift = Templates(k=k, fold=1.0, store="templates")
    model, x = lift.project(lift.lift(task)).model.eval(), torch.randn(2, 2, 7, 7)
    assert tl.deploy.export(model, x, tmp_path / "model.onnx") < 1e-4
    stored = sum(len(t.raw_data) for t in onnx.load(tmp_path / "model.onnx").graph.initializer)
    assert 4 * k * 9216 < stored < 4 * (k + 1) * 9216


def test_measure_and_shrink_leave_shared_weights_shared(shared):
    model, x = shared
    assert tl.deploy.measure(model, x, repeats=1).params == sum(p.numel() for p in model.parameters())
    small = tl.deploy.shrink(model, x)
    torch.testing.assert_close(small(x), model(x))
    assert storages(small) == storages(model)


def test_reuse_tells_which_layers_use_a_weight():
    lift, problem = lifted_with(PARALLEL, grid(), fold=1.0)
    uses = tl.analyze.reuse(lift.project(problem).model)
    assert {name: list(layers) for name, layers in uses.items()} == {
        "blocks.0.conv": ["blocks.0.conv", "blocks.1.conv", "blocks.2.conv"],
        "blocks.3.conv": ["blocks.3.conv", "blocks.4.conv"],
    }
    assert list(uses["blocks.0.conv"].values()) == pytest.approx([-0.5, 1.0, -0.15])


def test_attention_of_torch_folds():
    """Projections that attention and its fast path read themselves: scaled inputs, or the scaled weight."""
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(8, 2))
    for module in model[0].layers[1:]:
        for p in module.parameters():
            nn.init.normal_(p, std=0.3)
    task = tl.Task(model, "mse").eval()
    lift, x = Templates(k=1, fold=1.0), torch.randn(2, 5, 8)
    problem = lift.lift(task).eval()
    small = lift.project(problem).eval()
    torch.testing.assert_close(small.predict(x), problem.predict(x), atol=1e-5, rtol=1e-5)
    with torch.no_grad():  # the fused path of torch
        torch.testing.assert_close(small.predict(x), problem.predict(x), atol=1e-5, rtol=1e-5)
    attention = [module for module in small.modules() if isinstance(module, nn.MultiheadAttention)]
    assert len(attention) == 3
    assert len({id(module.in_proj_weight) for module in attention}) == 1
    assert sum(p.numel() for p in small.parameters()) < 0.5 * sum(p.numel() for p in task.parameters())


def test_gpt2_of_transformers_folds():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=3, n_head=2)
    task = tl.Task(GPT2LMHeadModel(config), "cross_entropy").eval()
    lift, x = Templates(k=1, fold=1.0), torch.randint(0, 11, (2, 8))
    problem = lift.lift(task).eval()
    small = lift.project(problem).eval()
    torch.testing.assert_close(small.predict(x).logits, problem.predict(x).logits, atol=1e-5, rtol=1e-5)
    assert small.model.lm_head.weight is small.model.transformer.wte.weight
    assert len({row.stored for row in lift.folds(problem)}) == 4


def test_layers_that_are_not_linear_in_a_weight_stay_and_say_why():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList(nn.GRU(4, 4, batch_first=True) for _ in range(3))

        def forward(self, x):
            for cell in self.cells:
                x = cell(x)[0]
            return x

    lift, task, x = Templates(k=1, where="*weight_hh*", fold=1.0), tl.Task(Net(), "mse"), torch.randn(2, 3, 4)
    problem = lift.lift(task)
    small = lift.project(problem)
    torch.testing.assert_close(small.predict(x), problem.predict(x))
    assert {row.why for row in lift.folds(problem)} == {"a GRU may not be linear in its weight_hh_l0"}
    assert sum(p.numel() for p in small.parameters()) == sum(p.numel() for p in task.parameters())


def test_pruned_layers_fold_with_their_like_only():
    task = grid(4)
    with torch.no_grad():
        for block in task.model.blocks[:2]:
            block.conv.weight[0] = 0.0
    record_pruned(task)
    lift, problem = lifted_with([[1.0], [2.0], [1.0], [-1.0]], task, fold=1.0)
    rows, small = lift.folds(problem), lift.project(problem).eval()
    assert [row.stored[7] for row in rows] == ["1", "1", "2", "2"]
    assert not small.model.blocks[1].conv.weight[0].any()
    x = torch.randn(2, 2, 7, 7)
    torch.testing.assert_close(small.predict(x), problem.predict(x), atol=1e-5, rtol=1e-5)


def test_tied_weights_fold_in_all_their_places():
    """The second layer of three is the fourth: one use of the stored weight in two places."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    model[3].weight = model[1].weight
    task, x = tl.Task(model, "mse"), torch.randn(3, 4)
    lift, problem = lifted_with([[1.0], [-3.0], [2.0]], task, fold=1.0)
    small = lift.project(problem)
    torch.testing.assert_close(small.predict(x), problem.predict(x))
    assert [type(module).__name__ for module in small.model] == ["ScaledUse", "Linear", "ScaledUse", "Linear"]
    assert small.model[3].weight is small.model[0].inner.weight


def test_folding_needs_the_layers_underneath():
    lift = tl.chain(tl.lifts.SoftMask("*head.weight"), Templates(k=1, fold=1.0, where="*conv.weight"))
    task = grid(3)
    with torch.no_grad():
        task.model.head.weight[0, 0] = 0.0
    problem = lift.lift(task)
    with pytest.raises(OrderError, match="chain it first"):
        lift.lifts[1].project(problem)


def scaled(layer):
    """A layer that uses a multiple of the weight of another, the multiple, and the other."""
    task = tl.Task(nn.Sequential(layer, copy.deepcopy(layer)), "mse")
    lift, problem = lifted_with([[-2.0], [1.0]], task, fold=1.0)
    first, second = lift.project(problem).model
    return (first, -2.0, second) if hasattr(first, "scale") else (second, -0.5, first)


def test_a_use_answers_for_its_layer():
    conv = nn.Conv2d(2, 2, 3, stride=2)
    use, scale, stored = scaled(conv)
    assert use.stride == (2, 2)
    torch.testing.assert_close(use.weight, scale * stored.weight)
    assert torch.equal(use.bias, conv.bias)
    with pytest.raises(AttributeError, match="color"):
        _ = use.color


def test_a_pruned_layer_without_its_like_stays_and_says_why():
    task = grid(3)
    with torch.no_grad():
        task.model.blocks[0].conv.weight[0] = 0.0
    record_pruned(task)
    lift, problem = lifted_with([[1.0], [2.0], [-1.0]], task, fold=1.0)
    assert [bool(row.why) for row in lift.folds(problem)] == [True, False, False]


def test_an_input_by_name_is_scaled_and_none_is_an_error():
    use, x = scaled(nn.Linear(3, 3))[0], torch.randn(4, 3)
    assert torch.equal(use(input=x), use(x))
    with pytest.raises(TypeError, match="without an input to scale"):
        use(values=x)


def test_training_moves_the_stored_weight_once(shared):
    model, x = shared
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()(x).square().mean().backward()
    before = storages(model)
    optimizer.step()
    assert storages(model) == before
    assert all(p.grad is not None for p in model.parameters())
