"""AvaGrad's published rule as one pass over memory: a C loop, built once with the machine's own compiler.

γ lags a step, so that w, m and v move and Ση² is summed while an entry is at hand. With the two roots' shifts
a and b, 1/((√v + a)·(√v + b)) needs one division for both the move and η.
"""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .blocks import Block

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#define PIECE 16384
typedef struct { double rate, shift, later, keep, decay, beta1, beta2; int32_t skip, sign; } Numbers;

static void piece(REAL *restrict w, const REAL *restrict grad, REAL *restrict m, REAL *restrict v,
                  int64_t size, const Numbers *n, double *squares, double *alive) {
  const REAL rate = n->rate, a = n->shift, b = n->later, keep = n->keep, decay = n->decay;
  const REAL b1 = n->beta1, b2 = n->beta2, c1 = 1 - n->beta1, c2 = 1 - n->beta2, sign = n->sign;
  const REAL all = n->skip ? 0 : 1;
  double total = 0, count = 0;
  for (int64_t start = 0; start < size; start += 256) {
    const int64_t end = start + 256 < size ? start + 256 : size;
    REAL part = 0, lives = 0;
#pragma omp simd reduction(+ : part, lives)
    for (int64_t i = start; i < end; i++) {
      const REAL raw = sign * grad[i], old = v[i], weight = w[i];
      const REAL lived = (all + old + raw * raw > 0) ? (REAL)1 : (REAL)0;
      const REAL g = raw + decay * lived * weight;
      const REAL first = m[i] + c1 * (g - m[i]);
      const REAL root = SQRT(old);
      const REAL both = 1 / ((root + a) * (root + b));
      const REAL moves = (all + old > 0) ? (REAL)1 : (REAL)0;
      const REAL counts = ((all > 0) | ((old > 0) & (first != 0))) ? (REAL)1 : (REAL)0;
      const REAL eta = counts * both * (root + a);
      part += eta * eta;
      lives += counts;
      w[i] = keep * weight - moves * rate * first * both * (root + b);
      m[i] = first;
      v[i] = b2 * old + c2 * g * g;
    }
    total += part;
    count += lives;
  }
  *squares += total;
  *alive += count;
}

void sweep(int64_t tensors, REAL *const *w, REAL *const *g, REAL *const *m, REAL *const *v,
           const int64_t *sizes, const Numbers *n, int threads, double *answer) {
  double squares = 0, alive = 0;
  for (int64_t t = 0; t < tensors; t++) {
    const int64_t pieces = (sizes[t] + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(threads) if (threads > 1 && pieces > 8) reduction(+ : squares, alive)
    for (int64_t p = 0; p < pieces; p++) {
      const int64_t at = p * PIECE, size = sizes[t] - at < PIECE ? sizes[t] - at : PIECE;
      piece(w[t] + at, g[t] + at, m[t] + at, v[t] + at, size, n, &squares, &alive);
    }
  }
  answer[0] = squares;
  answer[1] = alive;
}
"""
KINDS = {torch.float32: ("float", "sqrtf"), torch.float64: ("double", "sqrt")}
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")


class Numbers(ctypes.Structure):
    """What a sweep needs to know beside the tensors: α·γ, the shifts of the two roots, decays, β1 and β2."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("rate", "shift", "later", "keep", "decay", "beta1", "beta2")),
        ("skip", ctypes.c_int32),
        ("sign", ctypes.c_int32),
    )


def refusal(params: Sequence[Tensor]) -> str | None:
    """Why a group of weights cannot be swept, or None."""
    if any(weight.device.type != "cpu" for weight in params):
        return (
            "works on the CPU; elsewhere torch.compile(optimizer.step) with capturable=True makes one kernel"
        )
    if other := {weight.dtype for weight in params if weight.dtype.to_real() not in KINDS}:
        return f"works in float32 and float64, not in {other.pop()}"
    return None


def sweepable(part: Block, eps: float) -> bool:
    """Whether m and v lie in memory as w does, without gaps, and 1/ε² is a number."""
    return eps > 1e-15 and all(map(alike, part.params, part.firsts, part.seconds))


def alike(weight: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether three tensors fill their stretch of memory, with their dimensions in the same order."""
    if weight.is_contiguous() and first.is_contiguous() and second.is_contiguous():
        return True
    order = sorted(range(weight.ndim), key=weight.stride, reverse=True)
    return weight.permute(order).is_contiguous() and weight.stride() == first.stride() == second.stride()


def sweep(part: Block, numbers: Numbers) -> tuple[float, float]:
    """Move w, m and v of a block; return Ση² and the number of entries in it."""
    lists = [part.params, in_step(part.grads, part.params), part.firsts, part.seconds]
    answer = (ctypes.c_double * 2)()
    sizes = (ctypes.c_int64 * len(part.params))(*map(Tensor.numel, part.params))
    library(part.params[0].dtype).sweep(
        ctypes.c_int64(len(sizes)), *map(pointers, lists), sizes, ctypes.byref(numbers),
        ctypes.c_int(torch.get_num_threads()), answer,
    )  # fmt: skip
    return answer[0], answer[1]


def in_step(grads: Sequence[Tensor], params: Sequence[Tensor]) -> list[Tensor]:
    """Gradients laid out in memory as their weights are."""
    return [
        grad
        if both_plain(grad, weight) or grad.stride() == weight.stride()
        else torch.empty_like(weight).copy_(grad)
        for grad, weight in zip(grads, params, strict=True)
    ]


def both_plain(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors are contiguous, which is quicker to ask than their strides."""
    return one.is_contiguous() and two.is_contiguous()


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """Where the tensors lie."""
    return (ctypes.c_void_p * len(tensors))(*map(Tensor.data_ptr, tensors))


@functools.cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The loop for one kind of number, built when it is first needed."""
    real, root = KINDS[dtype]
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise RuntimeError("AvaGrad: fused=True needs a C compiler (cc, gcc, clang or CC=…); or fused=False")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "sweep.so"
        words = [
            compiler,
            *FLAGS,
            f"-DREAL={real}",
            f"-DSQRT={root}",
            "-x",
            "c",
            "-",
            "-o",
            str(built),
            "-lm",
        ]
        for threads in ("-fopenmp", "-fopenmp-simd"):
            made = subprocess.run(
                [words[0], threads, *words[1:]], input=SOURCE, text=True, capture_output=True
            )
            if made.returncode == 0:
                return ctypes.CDLL(str(built))
    raise RuntimeError(
        f"AvaGrad: {compiler} cannot build the fused step ({made.stderr[:200]}); or fused=False"
    )
