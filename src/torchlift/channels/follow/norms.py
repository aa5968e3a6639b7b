"""Rules of norms: by channel, by group, and over all channels."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import Norm, rule, tensors_in


@rule(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit",
    "cudnn_batch_norm",
)
def by_channel(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Each channel by itself: weight, bias and statistics go with it."""
    x = args[0]
    shape = [1, x.shape[1], *(1,) * (x.ndim - 2)]
    known = f.look(x)
    why = "differs from place to place in a map"
    cores = [c for core in known.cores if (c := f.settle(core, {0, *range(2, x.ndim)}, why)) is not None]
    held = [f.look(tensor) for tensor in tensors_in(args[1:5])]
    own = [[core.reshape(shape) for core in one.cores] for one in held]
    f.put_all(out)
    if all(len(each) == 1 for each in (cores, *own)) and varying(cores[0]) == {1}:
        for each in own:
            f.labels.unite(cores[0], each[0])
        f.put(out[0], own[0] if own else cores)  # labels of weights are never 0
        return
    parts = [(each, shape, one.wild) for each, one in zip(own, held, strict=True)]
    f.put(out[0], f.merge(shape, [(cores, shape, known.wild), *parts]))


@rule("native_group_norm")
def by_group(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Channels of a group are averaged together: whole groups go."""
    x, groups = args[0], int(args[6])
    shape = [1, x.shape[1], *(1,) * (x.ndim - 2)]
    known = f.look(x)
    why = "GroupNorm mixes the places of a map"
    cores = [c for core in known.cores if (c := f.settle(core, set(range(2, x.ndim)), why)) is not None]
    parts = [(cores, shape, known.wild)]
    for tensor in tensors_in(args[1:3]):
        parts.append(([core.reshape(shape) for core in f.look(tensor).cores], shape, False))
    made = f.merge(shape, parts)
    for core in made:
        if varying(core) == {1}:
            rows = core.reshape(groups, -1)
            f.labels.unite(rows, rows[:, :1])
            if groups == 1:
                f.labels.freeze(rows[:, :1], "GroupNorm with one group mixes the channels")
    f.put_all(out)
    f.put(out[0], made)


@rule("native_layer_norm")
def over_features(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """LayerNorm."""
    f.put_all(out)
    f.put(out[0], averaged(f, "layer", args[0], list(args[2:4]), len(args[1])))


def averaged(
    f: Follower, kind: str, x: Tensor, affine: Sequence[Tensor | None], count: int = 1
) -> list[Tensor]:
    """A norm over the last dimensions; channels go with its weight and bias if what they carry is zero."""
    known, last = f.look(x), set(range(x.ndim - count, x.ndim))
    kept: list[Tensor] = []
    for core in known.cores:
        if varying(core) == {x.ndim - 1} and count == 1:
            labels = core.flatten()
            f.norms.append(Norm(f.module, kind, labels))
            f.watch.averages(labels, x)
            kept.append(core)
        else:
            settled = f.settle(core, last, f"a norm over {count} dimensions mixes the channels")
            kept += [] if settled is None else [settled]
    parts: list[tuple[list[Tensor], Sequence[int], bool]] = [(kept, x.shape, known.wild)]
    for tensor in affine:
        if tensor is not None:
            parts.append((f.look(tensor).cores, tensor.shape, False))
    return f.merge(x.shape, parts)
