"""Rules of operations that move entries: the labels are moved in the same way."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import Labeled, ModuleSizes, pad, replayed, rule, tensors_in, words

PLAIN = words(
    """view _unsafe_view reshape _reshape_alias permute transpose t expand squeeze unsqueeze slice select
    split split_with_sizes unbind chunk unsafe_chunk unsafe_split unsafe_split_with_sizes flip roll repeat
    pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diagonal unfold repeat_interleave
    narrow movedim"""
)

LOOKED_UP = "rows that are looked up by number stay"

SIZED = {"view", "_unsafe_view", "reshape", "split", "unsafe_split", "split_with_sizes", "expand"}


@rule(*PLAIN)
def reorder(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Anything that only reorders, repeats or picks."""
    labeled = f.look(args[0])
    results = tensors_in([out])
    moved: list[list[Tensor]] = [[] for _ in results]
    name = func.overloadpacket.__name__
    views = name in ("view", "_unsafe_view", "_reshape_alias")  # labels lie in memory otherwise

    def again(full: Tensor) -> Any:
        return full.reshape(out.shape) if views else func(full, *args[1:], **kwargs)

    for core in labeled.cores:
        cores = replayed(core, args[0].shape, again)
        for mine, core in zip(moved, cores, strict=True):
            mine.append(core)
    for tensor, cores in zip(results, moved, strict=True):
        cores = f.joined(apart(f, cores))
        f.put(tensor, cores, wild=labeled.wild, pure=labeled.pure)
        if name in SIZED:
            f.shapes += [ModuleSizes(f.module, tuple(tensor.shape), core) for core in cores]


@rule("transpose_", "t_", "unsqueeze_", "squeeze_")
def turn_labels(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A tensor turned in place: its shape is new already, its labels follow."""
    labeled = f.look(args[0])
    f.put(
        out, [func(core.clone(), *args[1:]) for core in labeled.cores], wild=labeled.wild, pure=labeled.pure
    )


@rule("as_strided_")
def restride(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Another order in memory; of another shape it cannot be followed."""
    labeled = f.look(args[0])
    if labeled.shape != out.shape:
        f.give_up([args[0]], "as_strided_ to another shape cannot be followed")
        f.put(out, [])


def apart(f: Follower, cores: list[Tensor]) -> list[Tensor]:
    """Two directions of labels that fall on one dimension (a flattened matrix) cannot be told apart."""
    kept: list[Tensor] = []
    for core in cores:
        if any(varying(core) & varying(other) for other in kept):
            f.labels.freeze(core, "two kinds of channels were flattened into one dimension")
        elif varying(core):
            kept.append(core)
        elif bool(core.any()):
            continue
    return kept


@rule("cat")
def join(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Concatenation: along its dimension labels stand side by side, across it they are united."""
    inputs = [t for t in args[0] if t.numel()]
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % out.ndim
    along: list[Tensor] = []
    across: list[tuple[list[Tensor], Sequence[int], bool]] = []
    cores_of = {id(tensor): f.look(tensor).cores for tensor in inputs}
    if not all(any(dim in varying(core) for core in cores) for cores in cores_of.values()):
        cores_of = {  # features of heads beside others that are not followed: heads as a whole
            key: [f.labels.along(c, {dim}) if len(varying(c)) > 1 else c for c in cores]
            for key, cores in cores_of.items()
        }
    for tensor in inputs:
        labeled = Labeled(tensor.shape, cores_of[id(tensor)], f.look(tensor).wild)
        mine = [core for core in labeled.cores if dim in varying(core)]
        if len(mine) != 1:
            for core in mine:
                f.labels.freeze(core, "two kinds of channels were concatenated")
            mine = [torch.zeros((1,) * out.ndim, dtype=torch.int64)]
        along.append(mine[0].expand(tensor.shape))
        rest = [core for core in labeled.cores if dim not in varying(core)]
        across.append((rest, [1 if d == dim else n for d, n in enumerate(tensor.shape)], labeled.wild))
    cores = f.merge([1 if d == dim else n for d, n in enumerate(out.shape)], across)
    if any(bool(piece.any()) for piece in along):
        (core,) = replayed(torch.cat(along, dim), out.shape, lambda full: full)
        cores = f.joined([*cores, core])
    f.put(out, cores, pure=all(f.look(t).pure for t in inputs))


@rule("stack")
def pile(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A new dimension without labels."""
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % out.ndim
    operands: list[tuple[list[Tensor], Sequence[int], bool]] = []
    for tensor in args[0]:
        labeled = f.look(tensor)
        shape = list(tensor.shape)
        shape.insert(dim, 1)
        operands.append(([core.unsqueeze(dim) for core in labeled.cores], shape, labeled.wild))
    shape = [1 if d == dim else n for d, n in enumerate(out.shape)]
    f.put(out, f.merge(shape, operands), pure=all(f.look(t).pure for t in args[0]))


@rule("constant_pad_nd")
def fill(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Padding: of channels themselves, with what is not followed."""
    labeled = f.look(args[0])
    n = out.ndim
    padded = {n - 1 - i for i in range(len(args[1]) // 2) if args[1][2 * i] or args[1][2 * i + 1]}
    cores = [
        core
        if not varying(core) & padded
        else replayed(core, args[0].shape, lambda full: func(full, args[1], 0))[0]
        for core in labeled.cores
    ]
    f.put(out, cores, pure=labeled.pure)


@rule("index_select", "gather", "index", "take_along_dim", "embedding")
def pick(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Entries picked by number: what is picked from stays whole, the rest moves along."""
    name, source = func.overloadpacket.__name__, args[0]
    if name == "embedding":
        picked, move_ = {0}, lambda full: full[args[1]]
    elif name == "index":
        picked = {d for d, index in enumerate(args[1]) if index is not None}
        move_ = lambda full: func(full, *args[1:])
    else:
        picked, move_ = {args[1] % max(source.ndim, 1)}, lambda full: func(full, *args[1:])
    labeled = f.look(source)
    cores: list[Tensor] = []
    for core in labeled.cores:
        kept = f.unmixed(core, picked, LOOKED_UP)
        if kept is not None:
            if name == "embedding":
                f.readers.looked_up[kept] = True
            cores += replayed(kept, source.shape, move_)
    f.put(out, f.joined(cores))


@rule("copy_")
def write_labels(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Writing into a tensor, or into a part of one whose labels then hold for the whole."""
    target, source = f.look(args[0]), f.look(args[1])
    cores = f.merge(out.shape, [(target.cores, out.shape, True), (source.cores, args[1].shape, source.wild)])
    f.put(out, cores, pure=source.pure)
    base = out._base  # pyright: ignore[reportPrivateUsage]
    if base is None:
        return
    fits = base.ndim == out.ndim
    for core in cores:
        if fits and all(base.shape[d] == out.shape[d] for d in varying(core)):
            whole = f.look(base)
            f.put(base, f.joined([*whole.cores, pad(core, base.ndim)]), pure=False)
        else:
            f.labels.freeze(core, "is written into a part of another tensor")
