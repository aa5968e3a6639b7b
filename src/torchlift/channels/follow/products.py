"""Rules of matrix products and convolutions: channels are read along one dimension, written along another."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import Known, pad, rule

UNFOLLOWED = "reads the model's input, or what cannot be followed"
WHOLE = "features that are multiplied with each other inside a head go only with the head"


@rule("mm")
def matrix(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A[m, k] B[k, n]."""
    f.put(out, [c.squeeze(0) for c in product(f, f.look(args[0]), f.look(args[1]))], pure=pure(f, args))


@rule("bmm")
def matrices(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A[b, m, k] B[b, k, n]."""
    f.put(out, product(f, f.look(args[0]), f.look(args[1])), pure=pure(f, args))


@rule("addmm", "baddbmm", "addbmm")
def affine(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """c + A B."""
    made = product(f, f.look(args[1]), f.look(args[2]))
    made = [c.squeeze(0) if out.ndim == 2 else c for c in made]
    added = f.look(args[0])
    cores = f.merge(out.shape, [(made, out.shape, False), (added.cores, args[0].shape, added.wild)])
    f.put(out, cores, pure=pure(f, args))


@rule("mv", "addmv", "dot")
def vector(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Products with vectors are rare: what they touch stays."""
    f.give_up([a for a in args if isinstance(a, Tensor)], "is multiplied with a vector")
    f.put(out, [])


def pure(f: Follower, args: Sequence[Any]) -> bool:
    """Whether all operands are weights."""
    return all(f.look(a).pure for a in args if isinstance(a, Tensor))


def product(f: Follower, a: Known, b: Known) -> list[Tensor]:
    """The cores of a batched product A[b, m, k] B[b, k, n], all with three dimensions."""
    left, over_a, whole_a = parted(f, [pad(c, 3) for c in a.cores], 2)
    right, over_b, whole_b = parted(f, [pad(c, 3) for c in b.cores], 1)
    if over_a is not None or over_b is not None:
        read(f, a, b, over_a, over_b, whole_a or whole_b)
    f.watch.count(a, b, left, right, over_a if over_a is not None else over_b)
    batch, rows, columns = a.tensor.shape[:-2].numel(), a.tensor.shape[-2], b.tensor.shape[-1]
    shapes = (batch, rows, 1), (b.tensor.shape[:-2].numel(), 1, columns)
    return f.merge((batch, rows, columns), [(left, shapes[0], a.wild), (right, shapes[1], b.wild)])


def parted(f: Follower, cores: list[Tensor], k: int) -> tuple[list[Tensor], Tensor | None, bool]:
    """(cores that do not differ along k, labels along k, whether heads were made whole)."""
    rest: list[Tensor] = []
    along: Tensor | None = None
    whole = False
    for core in cores:
        if k not in varying(core):
            rest.append(core)
        elif varying(core) == {k}:
            flat = core.flatten()
            if along is not None:
                f.labels.unite(along, flat)
            along = flat
        else:
            rest.append(f.labels.along(core, {k}))
            whole = True
    return rest, along, whole


def weigh(f: Follower, a: Known, b: Known, labels: Tensor) -> None:
    """A product A[…, k] B[k, …] one of whose operands is a weight, as that weight's reading of the other."""
    given, weight = (a.tensor, -1), (b.tensor, -2)
    if not b.pure:
        given, weight = weight, given
    f.watch.reads(f, labels, given, weight, foldable=not (a.pure and b.pure))


def read(f: Follower, a: Known, b: Known, over_a: Tensor | None, over_b: Tensor | None, whole: bool) -> None:
    """Unite what is summed over, and note what the reader is given."""
    if over_a is not None and over_b is not None:
        f.labels.unite(over_a, over_b, UNFOLLOWED)
        if a.pure or b.pure:
            weigh(f, a, b, over_b if b.pure else over_a)
        else:
            f.labels.freeze(over_a, WHOLE)
        return
    lone, other = (over_a, b) if over_a is not None else (over_b, a)
    assert lone is not None
    if (a if over_a is not None else b).pure:
        f.watch.reader[lone] = True
    if not other.wild:
        f.labels.freeze(lone, WHOLE if whole else UNFOLLOWED)
