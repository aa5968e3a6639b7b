"""Rules of matrix products and convolutions: channels are read along one dimension, written along another."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import Labeled, pad, rule

UNFOLLOWED = "reads the model's input, or what cannot be followed"
WHOLE = "features that are multiplied with each other inside a head go only with the head"


@rule("mm")
def matrix(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A[m, k] B[k, n]."""
    f.put(out, [c.squeeze(0) for c in product(f, args[0], args[1])], pure=pure(f, args))


@rule("bmm")
def matrices(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A[b, m, k] B[b, k, n]."""
    f.put(out, product(f, args[0], args[1]), pure=pure(f, args))


@rule("addmm", "baddbmm", "addbmm")
def affine_labels(
    f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """c + A B."""
    product_cores = product(f, args[1], args[2])
    product_cores = [c.squeeze(0) if out.ndim == 2 else c for c in product_cores]
    added = f.look(args[0])
    cores = f.merge(out.shape, [(product_cores, out.shape, False), (added.cores, args[0].shape, added.wild)])
    f.put(out, cores, pure=pure(f, args))


@rule("_grouped_mm")
def by_expert(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Rows A[m, k] times B[e, k, n], each with the expert e that is its own: experts stay."""
    b = f.look(args[1])
    for core in b.cores:
        if 0 in varying(core):
            f.labels.freeze(core, "experts are chosen by number")
    b.cores = [core for core in b.cores if 0 not in varying(core)]
    f.put(out, [c.squeeze(0) for c in product(f, args[0], args[1])])


@rule("mv", "addmv", "dot")
def vector(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Products with vectors are rare: what they touch stays."""
    f.give_up([a for a in args if isinstance(a, Tensor)], "is multiplied with a vector")
    f.put(out, [])


def pure(f: Follower, args: Sequence[Any]) -> bool:
    """Whether all operands are weights."""
    return all(f.look(a).pure for a in args if isinstance(a, Tensor))


def product(f: Follower, left: Tensor, right: Tensor) -> list[Tensor]:
    """The cores of a batched product A[b, m, k] B[b, k, n], all with three dimensions."""
    a, b = f.look(left), f.look(right)
    rest_a, over_a, whole_a = divided(f, [pad(c, 3) for c in a.cores], 2)
    rest_b, over_b, whole_b = divided(f, [pad(c, 3) for c in b.cores], 1)
    if over_a is not None or over_b is not None:
        read_sum(f, left, right, over_a, over_b, whole_a or whole_b)
    f.readers.count(a.shape, b.shape, rest_a, rest_b, over_a if over_a is not None else over_b)
    batch, rows, columns = a.shape[:-2].numel(), a.shape[-2], b.shape[-1]
    shapes = (batch, rows, 1), (b.shape[:-2].numel(), 1, columns)
    return f.merge((batch, rows, columns), [(rest_a, shapes[0], a.wild), (rest_b, shapes[1], b.wild)])


def divided(f: Follower, cores: list[Tensor], k: int) -> tuple[list[Tensor], Tensor | None, bool]:
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


def read_sum(
    f: Follower, left: Tensor, right: Tensor, over_a: Tensor | None, over_b: Tensor | None, whole: bool
) -> None:
    """Unite what is summed over, and note what the reader is given."""
    a, b = f.look(left), f.look(right)
    sides = (left, -1), (right, -2)
    if over_a is not None and over_b is not None:
        f.labels.unite(over_a, over_b, UNFOLLOWED)
        if b.pure:
            f.readers.reads(f, over_b, sides[0], sides[1], foldable=not a.pure)
        elif a.pure:
            f.readers.reads(f, over_a, sides[1], sides[0], foldable=True)
        else:
            f.labels.freeze(over_a, WHOLE)
        return
    lone, weight, other = (over_a, *sides) if over_a is not None else (over_b, *reversed(sides))
    assert lone is not None
    if not f.look(other[0]).wild:
        f.readers.reader[lone] |= f.look(weight[0]).pure
        f.labels.freeze(lone, WHOLE if whole else UNFOLLOWED)
    elif f.look(weight[0]).pure:  # meets a constant of the model's code, such as the first state of an RNN
        f.readers.reads(f, lone, other, weight, foldable=False)


@rule("convolution", "_convolution", "mkldnn_convolution")
def convolve(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Channels are read along dimension 1 of x, written along dimension 0 of the kernel, or within groups."""
    x, kernel = f.look(args[0]), f.look(args[1])
    padding, transposed, groups = args[4], bool(args[6]), int(args[8])
    why = "differs from place to place in a map"
    cores = [c for core in x.cores if (c := f.unmixed(core, set(range(2, out.ndim)), why)) is not None]
    rest, channels, _ = divided(f, cores, 1)
    rows = directions(f, kernel)
    narrowed = groups > 1 and f.equal_groups and args[1].shape[1] > 1
    writes = None
    if narrowed:
        writes = narrowed_groups(f, channels, rows, groups, transposed)
    elif groups > 1:
        writes = grouped(f, x, channels, rows, args[1], groups, transposed)
    if writes is None:
        reads, writes = (rows[0], rows[1]) if transposed else (rows[1], rows[0])
        if channels is not None and reads is not None:
            f.labels.unite(channels, reads, UNFOLLOWED)
            dim = 0 if transposed else 1
            foldable = not transposed and not any(padding)
            f.readers.reads(f, reads, (args[0], 1), (args[1], dim), foldable=foldable)
        elif reads is not None:
            f.readers.reader[reads] = True
            f.labels.freeze(reads, UNFOLLOWED)
        elif channels is not None:
            f.labels.freeze(channels, UNFOLLOWED)
    within = rows[0 if transposed else 1] if narrowed else channels if groups == 1 else None
    f.readers.count_maps(out, args[1], writes, within, groups, transposed)
    cores = [] if writes is None else [writes.reshape(1, -1, *(1,) * (out.ndim - 2))]
    bias = args[2]
    if isinstance(bias, Tensor):
        own = [core.reshape(1, -1, *(1,) * (out.ndim - 2)) for core in f.look(bias).cores]
        shape = [1, len(bias), *(1,) * (out.ndim - 2)]
        cores = f.merge(shape, [(cores, shape, False), (own, shape, False)])
    f.put(out, f.joined([*rest, *cores]))


def directions(f: Follower, kernel: Labeled) -> tuple[Tensor | None, Tensor | None]:
    """The labels of a kernel's first two dimensions; its places stay."""
    labels: list[Tensor | None] = [None, None]
    for core in kernel.cores:
        dims = varying(core)
        if dims in ({0}, {1}):
            labels[min(dims)] = core.flatten()
        else:
            f.labels.freeze(core, "the places of a kernel stay")
    return labels[0], labels[1]


def narrowed_groups(
    f: Follower,
    channels: Tensor | None,
    rows: tuple[Tensor | None, Tensor | None],
    groups: int,
    transposed: bool,
) -> Tensor | None:
    """As many channels of every group: what stands in the same place of its group goes together."""
    outer, inner = rows
    if outer is not None:
        outer = outer.reshape(groups, -1)
        f.labels.unite(outer, outer[:1])
    reads, writes = (outer, inner) if transposed else (inner, outer)
    if reads is not None:
        f.readers.reader[reads] = True
        if channels is None:
            f.labels.freeze(reads, UNFOLLOWED)
        else:
            f.labels.unite(channels.reshape(groups, -1), reads)
    elif channels is not None:
        f.labels.freeze(channels, UNFOLLOWED)
    if writes is None or not transposed:
        return None if writes is None else writes.flatten()
    return writes.expand(groups, -1).flatten()


def grouped(
    f: Follower,
    x: Labeled,
    channels: Tensor | None,
    rows: tuple[Tensor | None, Tensor | None],
    kernel: Tensor,
    groups: int,
    transposed: bool,
) -> Tensor | None:
    """Whole groups: what a group reads and what it writes go together."""
    wide = kernel.shape[1] > 1
    if wide and rows[1] is not None:
        f.labels.freeze(rows[1], f"a convolution in {groups} groups loses whole groups only")
    own = rows[0]
    if own is None:
        return None
    first = own.reshape(groups, -1)
    if channels is None:
        f.labels.freeze(own, UNFOLLOWED)
    else:
        f.labels.unite(channels.reshape(groups, -1), first[:, :1])
    f.labels.unite(first, first[:, :1])
    per_group = kernel.shape[1] if transposed else kernel.shape[0] // groups
    return first[:, :1].expand(groups, per_group).flatten() if transposed else own
