import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from torchlift import data, models


def test_the_teacher_is_a_block_network():
    """With weights N(0, 2 / inputs), its values brought to [0, 1]."""
    generator = torch.Generator().manual_seed(3)
    net = models.BlockNet(2, inputs=3, width=4).double()
    with torch.no_grad():
        for p in (p for p in net.parameters() if p.ndim == 2):
            p.copy_((2 / p.shape[1]) ** 0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    parts = data.teacher_student(2, n=100, seed=3, inputs=3, width=4)
    x, y = (torch.cat(one).double() for one in zip(parts.train, parts.valid, parts.test, strict=True))
    values = net(x).detach()
    values = (values - values.min()) / (values.max() - values.min())
    torch.testing.assert_close(values, y, rtol=1e-5, atol=1e-5)


def test_teacher_student():
    parts = data.teacher_student(7, n=100, seed=3)
    assert [len(x) for x, _ in (parts.train, parts.valid, parts.test)] == [70, 10, 20]
    y = torch.cat([y for _, y in (parts.train, parts.valid, parts.test)])
    assert (y.min(), y.max()) == (0, 1)
    again, other = data.teacher_student(7, n=100, seed=3), data.teacher_student(7, n=100, seed=4)
    assert torch.equal(parts.train[1], again.train[1])
    assert not torch.equal(parts.train[1], other.train[1])


def reference_paths(a, b, free, diagonal):
    """Dijkstra on the graph of free cells."""
    size = free.shape[0]
    edges = [
        (i * size + j, k * size + m)
        for i, j, k, m in itertools.product(range(size), repeat=4)
        if free[i, j] and free[k, m] and (i, j) != (k, m)
        if (max(abs(i - k), abs(j - m)) if diagonal else abs(i - k) + abs(j - m)) == 1
    ]
    rows, columns = zip(*edges, strict=True) if edges else ((), ())
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size**2, size**2)).tocsr()
    start, end = (i * size + j for i, j in (a, b))
    d = dijkstra(graph, indices=[start, end], unweighted=True)
    on = d[0] + d[1] == d[0, end]
    return on.reshape(size, size) & np.isfinite(d[0, end])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), diagonal=st.booleans())
def test_shortest_paths_equal_dijkstra(seed, diagonal):
    x, y = data.shortest_paths(4, 4, seed, size=5, obstacles=0.35, diagonal=diagonal)
    for (queries, walls), (ours,) in zip(x.bool(), y.bool(), strict=True):
        theirs = reference_paths(*queries.nonzero().tolist(), ~walls.numpy(), diagonal)
        assert np.array_equal(ours.numpy(), theirs)


def test_shortest_paths_samples():
    x, y = data.shortest_paths(300, distance=4, seed=1)
    assert x.shape == (300, 2, 32, 32)
    assert y.shape == (300, 1, 32, 32)
    queries, walls = x[:, 0].bool(), x[:, 1].bool()
    assert (queries.sum((1, 2)) == 2).all()
    assert not (queries & walls).any()
    assert not (y[:, 0].bool() & walls).any()
    assert y[:, 0].bool()[queries].all()
    assert walls.float().mean().item() == pytest.approx(0.1, abs=0.005)
    cells = queries.nonzero()[:, 1:].view(300, 2, 2)
    apart = (cells[:, 0] - cells[:, 1]).abs().amax(1)
    assert (apart.min(), apart.max()) == (1, 4)
    assert torch.equal(data.shortest_paths(300, distance=4, seed=1)[0], x)


THINGS = [
    (f"{'the' if many else 'a'} {adjective} {noun}{'s' if many else ''}", "" if many else "s")
    for many in (False, True)
    for adjective in ("old", "red", "small", "quiet")
    for noun in ("cat", "dog", "robin", "owl", "tractor", "clock")
]
SENTENCES = [
    f"{subject} {verb}{ending} {thing}."
    for subject, ending in THINGS
    for verb in ("hear", "see", "follow", "greet")
    for thing, _ in THINGS
]


def test_toy_text_is_made_of_its_sentences():
    text = data.toy_text(5_000, seed=2)
    assert [len(split) for split in (text.train, text.valid, text.test)] == [4000, 500, 500]
    written = "".join(text.vocabulary[i] for i in torch.cat([text.train, text.valid, text.test]))
    assert set(written.split("\n")[:-1]) <= set(SENTENCES)


def test_toy_entropy_is_that_of_uniform_sentences():
    assert len(set(SENTENCES)) == 2 * 4 * 6 * 4 * 2 * 4 * 6
    bits = math.log2(len(SENTENCES))
    assert data.toy_entropy() == pytest.approx(bits / np.mean([len(text) + 1 for text in SENTENCES]))


def test_windows_shift_by_one():
    x, y = data.windows(torch.arange(12), 4)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert torch.equal(y, x + 1)
    with pytest.raises(data.LoadError, match="use a shorter one"):
        data.windows(torch.arange(4), 4)


def test_digits_and_iris():
    digits, iris = data.digits(), data.iris()
    assert (digits.shape, digits.outputs, len(digits.train[0])) == ((64,), 10, 1258)
    assert data.digits(image=True).shape == (1, 8, 8)
    assert digits.train[0].min() == 0
    assert digits.train[0].max() == 1
    assert (iris.shape, iris.outputs, len(iris.test[0])) == ((4,), 3, 30)
    torch.testing.assert_close(iris.train[0].mean(0), torch.zeros(4), atol=1e-5, rtol=0)


def test_splits_are_disjoint_and_complete():
    parts = data.split(torch.arange(50), torch.arange(50), "regression", seed=1)
    seen = torch.cat([x for x, _ in (parts.train, parts.valid, parts.test)])
    assert sorted(seen.tolist()) == list(range(50))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crop_flip_equals_the_obvious_loop(dtype):
    images = torch.randint(1, 255, (6, 3, 8, 10)).to(dtype)
    ours = data.crop_flip(images, torch.Generator().manual_seed(5), padding=2)
    generator = torch.Generator().manual_seed(5)
    down, right = torch.randint(5, (2, 6, 1), generator=generator)
    flips = torch.randint(2, (6,), generator=generator)
    assert len(set(flips.tolist())) == 2
    for image, out, i, j, flip in zip(images, ours, down, right, flips, strict=True):
        padded = torch.zeros(3, 12, 14, dtype=dtype)
        padded[:, 2:-2, 2:-2] = image
        window = padded[:, i : i + 8, j : j + 10]
        assert torch.equal(out, window.flip(-1) if flip else window)


def test_crop_flip_draws_from_its_generator_alone():
    before = torch.get_rng_state()
    data.crop_flip(torch.zeros(2, 1, 8, 8), torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


def test_normalize_gives_zero_mean_and_unit_variance():
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    scaled = data.normalize(images, *data.statistics(images))
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.var((0, 2, 3), correction=0), torch.ones(3))


def test_the_curriculum_gets_harder():
    phases = data.curriculum(200, seed=3, size=16)
    assert list(phases) == [2, 4, 6, 8, 10]
    for distance, (x, _) in phases.items():
        cells = x[:, 0].nonzero()[:, 1:].view(200, 2, 2)
        assert int((cells[:, 0] - cells[:, 1]).abs().amax()) == distance
    counts = [float(y.sum()) for _, y in phases.values()]
    assert counts == sorted(counts)
    again, other = data.curriculum(200, seed=3, size=16), data.curriculum(200, seed=4, size=16)
    assert torch.equal(again[6][0], phases[6][0])
    assert not any(torch.equal(one[0], two[0]) for one in other.values() for two in phases.values())


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 40))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(seed, size):
    generator = torch.Generator().manual_seed(seed)
    scores, target = (
        torch.randn(size, generator=generator),
        torch.randint(2, (size,), generator=generator).float(),
    )
    actual, true = scores > 0, target == 1
    both = int((actual & true).sum())
    if both:
        precision, recall = both / int(actual.sum()), both / int(true.sum())
        assert float(data.f1(scores, target)) == pytest.approx(2 / (1 / precision + 1 / recall))
    elif actual.any() or true.any():
        assert float(data.f1(scores, target)) == 0.0
    assert float(data.f1(target - 0.5, target)) == 1.0
