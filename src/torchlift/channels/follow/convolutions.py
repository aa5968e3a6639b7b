"""The rule of convolutions: plain, depthwise, in groups, transposed."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.products import UNFOLLOWED, parted
from torchlift.channels.follow.rules import Known, rule


@rule("convolution", "_convolution", "mkldnn_convolution")
def convolve(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Channels are read along dimension 1 of x, written along dimension 0 of the kernel, or within groups."""
    x, kernel = f.look(args[0]), f.look(args[1])
    padding, transposed, groups = args[4], bool(args[6]), int(args[8])
    why = "differs from place to place in a map"
    cores = [c for core in x.cores if (c := f.settle(core, set(range(2, out.ndim)), why)) is not None]
    rest, channels, _ = parted(f, cores, 1)
    rows = directions(f, kernel)
    made = grouped(f, x, channels, rows, args[1], groups, transposed) if groups > 1 else None
    if made is None:
        reads, made = (rows[0], rows[1]) if transposed else (rows[1], rows[0])
        if channels is not None and reads is not None:
            f.labels.unite(channels, reads, UNFOLLOWED)
            dim = 0 if transposed else 1
            foldable = not transposed and not any(padding)
            f.watch.reads(f, reads, (args[0], 1), (args[1], dim), foldable=foldable)
        elif reads is not None:
            f.watch.reader[reads] = True
            f.labels.freeze(reads, UNFOLLOWED)
        elif channels is not None:
            f.labels.freeze(channels, UNFOLLOWED)
    f.watch.count_maps(out, args[1], made, channels, groups, transposed)
    cores = [] if made is None else [made.reshape(1, -1, *(1,) * (out.ndim - 2))]
    bias = args[2]
    if isinstance(bias, Tensor):
        own = [core.reshape(1, -1, *(1,) * (out.ndim - 2)) for core in f.look(bias).cores]
        shape = [1, len(bias), *(1,) * (out.ndim - 2)]
        cores = f.merge(shape, [(cores, shape, False), (own, shape, False)])
    f.put(out, f.joined([*rest, *cores]))


def directions(f: Follower, kernel: Known) -> tuple[Tensor | None, Tensor | None]:
    """The labels of a kernel's first two dimensions; its places stay."""
    found: list[Tensor | None] = [None, None]
    for core in kernel.cores:
        dims = varying(core)
        if dims in ({0}, {1}):
            found[min(dims)] = core.flatten()
        else:
            f.labels.freeze(core, "the places of a kernel stay")
    return found[0], found[1]


def grouped(
    f: Follower,
    x: Known,
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
