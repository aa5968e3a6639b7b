"""The entropy coder: exact, at the entropy, and deaf to nonsense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlift.packed.budget import PackedError
from torchlift.packed.frequencies import Table, codes_of, fit, scaled, weights
from torchlift.packed.rans import LOW, STEPS, Decoder, Segment, encode, lanes_for


def drawn(rng: np.random.Generator, letters: int, count: int) -> np.ndarray:
    return rng.choice(letters, count, p=rng.dirichlet(np.full(letters, 0.3))).astype(np.uint16)


def slow_decode(states: list[int], words: list[int], segments: list[Segment]) -> list[list[int]]:
    """The formula of the docstring, one symbol at a time, in Python's whole numbers."""
    states, words, found = list(states), list(words), []
    for segment in segments:
        slots = [s for s, f in enumerate(segment.frequencies) for _ in range(f)]
        first = {s: slots.index(s) for s in set(slots)}
        found.append([])
        for i in range(segment.symbols.size):
            lane = i % len(states)
            slot = states[lane] % 2**segment.bits
            symbol = slots[slot]
            states[lane] = (
                int(segment.frequencies[symbol]) * (states[lane] >> segment.bits) + slot - first[symbol]
            )
            if states[lane] < LOW:
                states[lane] = states[lane] << 16 | words.pop(0)
            found[-1].append(symbol)
    assert not words
    assert set(states) == {LOW}
    return found


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(1, 300), st.integers(1, 400)), max_size=4))
@settings(max_examples=25, deadline=None)
def test_symbols_come_back_through_both_decoders(seed, kinds):
    rng = np.random.default_rng(seed)
    segments = []
    for letters, count in kinds:
        symbols = drawn(rng, letters, count)
        table, _ = fit(np.bincount(symbols, minlength=letters))
        segments.append(Segment(symbols, table.frequencies(), table.bits))
    states, words = encode(segments, 16)
    decoder = Decoder(states, words)
    for segment in segments:
        again = decoder.symbols(segment.symbols.size, segment.frequencies, segment.bits)
        np.testing.assert_array_equal(again, segment.symbols)
    decoder.close()
    slow = slow_decode(states.tolist(), words.tolist(), segments)
    assert slow == [segment.symbols.tolist() for segment in segments]


@pytest.mark.parametrize(
    "p", [[0.5, 0.5], [0.999, 0.001], [0.74, 0.245, 0.015], [1 / 6] * 6, list(np.full(256, 1 / 256))]
)
def test_the_code_is_within_a_hundredth_of_the_entropy(p):
    rng, n = np.random.default_rng(0), 200_000
    symbols = rng.choice(len(p), n, p=p).astype(np.uint16)
    counts = np.bincount(symbols, minlength=len(p))
    seen = counts[counts > 0]
    entropy = -(seen * np.log2(seen / n)).sum() / 8
    table, size = fit(counts)
    states, words = encode([Segment(symbols, table.frequencies(), table.bits)], 16)
    assert states.nbytes + words.nbytes <= 1.01 * entropy + 64
    assert size == pytest.approx(words.nbytes, rel=0.01, abs=300)


@given(st.lists(st.integers(0, 2**38), min_size=1, max_size=200).filter(any), st.integers(0, 10))
@settings(max_examples=50, deadline=None)
def test_weights_are_counts_to_their_significant_bits(counts, mantissa):
    counts = np.array(counts, np.int64)
    weight = weights(codes_of(counts, mantissa), mantissa).astype(float)
    np.testing.assert_array_equal(weight > 0, counts > 0)
    large = counts > counts.max() / 2**20
    ratio = weight[large] / counts[large]
    np.testing.assert_allclose(ratio / ratio[np.argmax(counts[large])], 1, rtol=2.0 ** (1 - mantissa))
    frequencies = scaled(weight.astype(np.int64), 16)
    assert frequencies.sum() == 2**16
    assert ((frequencies > 0) == (counts > 0)).all()


def read_whole(states: np.ndarray, words: np.ndarray, table: Table) -> None:
    decoder = Decoder(states, words)
    decoder.symbols(1000, table.frequencies(), table.bits)
    decoder.close()


def test_code_that_was_changed_is_noticed():
    symbols = np.random.default_rng(0).integers(0, 5, 1000).astype(np.uint16)
    table, _ = fit(np.bincount(symbols))
    states, words = encode([Segment(symbols, table.frequencies(), table.bits)], 16)
    for bad_states, bad_words in [
        (states, words[:-1]),
        (states, np.append(words, np.uint16(1))),
        (states, words ^ np.uint16(256)),
        (states ^ np.uint32(1 << 20), words),
    ]:
        with pytest.raises(PackedError):
            read_whole(bad_states, bad_words, table)
    with pytest.raises(PackedError, match="out of range"):
        Decoder(np.zeros(16, np.uint32), words)


def test_empty_and_crowded_tables_are_refused():
    with pytest.raises(PackedError, match="empty"):
        Table(np.zeros(4, np.int64), 0, 8).frequencies()
    with pytest.raises(PackedError, match="more symbols"):
        Table(np.ones(300, np.int64), 0, 8).frequencies()


def test_lanes_cost_little_and_steps_are_few():
    for size, symbols in [(1, 1), (1000, 8000), (20_000, 10**5), (10**6, 10**7), (10**9, 10**9), (10, 10**8)]:
        lanes = lanes_for(size, symbols)
        assert 16 <= lanes <= 32_768
        assert 3 * lanes <= max(48, (0.005 if lanes >= 256 else 0.01) * size, symbols / 40_000)
        assert symbols / lanes <= 2 * STEPS
    assert [lanes_for(54_000, symbols) for symbols in (10_000, 500_000)] == [90, 180]


def test_a_code_with_too_few_lanes_for_its_symbols_is_refused():
    """A handful of bytes could otherwise keep a reader busy for hours: a symbol of probability near one costs
    nothing."""
    with pytest.raises(PackedError, match="lanes"):
        Decoder(np.full(1, LOW, np.uint32), np.empty(0, np.uint16)).symbols(2**40, np.array([65535, 1]), 16)


def test_one_symbol_alone_says_nothing():
    symbols = np.full(10**6, 3, np.uint16)
    table, _ = fit(np.bincount(symbols))
    states, words = encode([Segment(symbols, table.frequencies(), table.bits)], 16)
    assert not words.size
    decoder = Decoder(states, words)
    np.testing.assert_array_equal(decoder.symbols(10**6, table.frequencies(), table.bits), symbols)
    decoder.close()
