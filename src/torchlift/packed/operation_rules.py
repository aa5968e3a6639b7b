"""What single operations need beyond sound numbers: shapes that agree, few pieces, no division that traps."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchlift.packed.budget import PackedError

MOST = 2**31
PIECES = 4096
TIMES, DEEP = 65_536, 64

Given = dict[str, Any]


def refuse(name: str, why: str) -> PackedError:
    """What a wrong argument is told."""
    return PackedError(f"operation {name!r} is given {why}.")


def need(name: str, fact: bool, why: str) -> None:
    """Refuse unless a fact holds."""
    if not fact:
        raise refuse(name, why)


def few_pieces(name: str, given: Given) -> None:
    """Splitting makes one tensor per piece."""
    tensor = given["self"]
    need(name, tensor.ndim > 0, "a number to split")
    length = tensor.shape[given["dim"]]
    size = given.get("split_size", 1)
    need(name, type(size) is int and size > 0 and length <= PIECES * size, f"{length} entries to split")


def whole_indices(name: str, given: Given) -> None:
    """Masks for indices would make shapes depend on values."""
    kinds = {index.dtype for index in given["indices"] if index is not None}
    need(name, kinds <= {torch.int64, torch.int32}, "indices that are no whole numbers")


def no_whole_division(name: str, given: Given) -> None:
    """Whole numbers may be divided by a positive number only: the least divided by −1 stops a processor."""
    if name.split(".")[1] == "div" and given.get("rounding_mode") is None:
        return
    other = given["other"]
    whole = not (is_float(given["self"]) or is_float(other))
    need(name, not whole or (type(other) is int and other > 0), "whole numbers to divide by anything")


def is_float(value: Any) -> bool:
    """Whether arithmetic with a value is not on whole numbers."""
    return (
        value.is_floating_point() or value.is_complex()
        if isinstance(value, Tensor)
        else isinstance(value, float)
    )


def few_rounds(name: str, given: Given) -> None:
    """Differences of differences, a few times; chunks, not too many."""
    need(name, given.get("n", 0) <= 8 and given.get("chunks", 0) <= PIECES, "too many rounds")


def channel_statistics(name: str, given: Given) -> None:
    """Normalization reads one entry per channel of each statistic."""
    x = given["input"]
    need(name, x.ndim >= 2, "an input without channels")
    for key in ("weight", "bias", "running_mean", "running_var"):
        held = given.get(key)
        need(name, held is None or held.shape == (x.shape[1],), f"{key} of another size than the channels")


def attention(name: str, given: Given) -> None:
    """softmax(q kᵀ) v: features of q and k, positions of k and v, and everything before must agree."""
    q, k, v = given["query"], given["key"], given["value"]
    need(name, min(q.ndim, k.ndim, v.ndim) >= 3 and q.ndim == k.ndim == v.ndim, "ranks that do not agree")
    need(name, q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2], "shapes that do not agree")
    need(name, k.shape[:-2] == v.shape[:-2] and q.shape[:-3] == k.shape[:-3], "batches that do not agree")
    same = q.shape[-3] == k.shape[-3]
    grouped = bool(given["enable_gqa"]) and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0
    need(name, same or grouped, "heads that do not agree")
    mask, scores = given["attn_mask"], (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        shape = (1,) * (len(scores) - mask.ndim) + tuple(mask.shape)
        fits = len(shape) == len(scores) and all(a in (1, b) for a, b in zip(shape, scores, strict=True))
        need(name, fits, "a mask of another shape than the scores")


def recurrent(name: str, given: Given) -> None:
    """Weights of layer l and each direction: (g·h, inputs), (g·h, h), and two biases of g·h."""
    x, params, layers = given["input"], given["params"], given["num_layers"]
    states = given["hx"] if isinstance(given["hx"], list | tuple) else [given["hx"]]
    gates = {"lstm": 4, "gru": 3}.get(name.split(".")[1], 1)
    ways, biases = 2 if given["bidirectional"] else 1, bool(given["has_biases"])
    each = 4 if biases else 2
    need(name, x.ndim in (2, 3) and max(x.shape) <= TIMES and layers <= DEEP, "too many steps or layers")
    need(
        name,
        len(states) == (2 if gates == 4 else 1) and len(params) == layers * ways * each,
        "missing weights",
    )
    need(
        name,
        x.is_floating_point() and len({x.dtype, *(p.dtype for p in [*params, *states])}) == 1,
        "mixed types",
    )
    need(name, all(s.ndim == x.ndim for s in states), "states of another rank")
    width, batch = states[0].shape[-1], x.shape[0 if given["batch_first"] else 1] if x.ndim == 3 else None
    state = (layers * ways, width) if batch is None else (layers * ways, batch, width)
    need(name, all(tuple(s.shape) == state for s in states), "states of another shape")
    for place in range(layers * ways):
        inputs = x.shape[-1] if place < ways else ways * width
        shapes = [(gates * width, inputs), (gates * width, width), (gates * width,), (gates * width,)][:each]
        found = [tuple(p.shape) for p in params[place * each : (place + 1) * each]]
        need(name, found == shapes, "weights of another shape")


def real_factors(name: str, given: Given) -> None:
    """Sizes after resampling: positive and finite."""
    factors = given.get("scale_factors") or []
    need(name, all(math.isfinite(f) and 0 < f < MOST for f in factors), f"scale_factors={factors}")
    need(name, all(n > 0 for n in given.get("output_size") or []), "an empty output_size")


RULES: dict[str, Callable[[str, Given], None]] = {
    **dict.fromkeys(("unbind", "split"), few_pieces), **dict.fromkeys(("fmod", "remainder", "floor_divide",
    "div"), no_whole_division), **dict.fromkeys(("batch_norm", "instance_norm",
    "_native_batch_norm_legit_no_training"), channel_statistics), **dict.fromkeys(("lstm", "gru", "rnn_tanh",
    "rnn_relu"), recurrent), **{f"upsample_{kind}": real_factors for kind in (
        "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")},
    "index": whole_indices,
    **dict.fromkeys(("diff", "chunk"), few_rounds),
    "scaled_dot_product_attention": attention,
}  # fmt: skip
