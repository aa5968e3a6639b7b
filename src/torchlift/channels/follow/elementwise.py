"""Rules of operations entry by entry, of reductions, pools and gates."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import varying
from torchlift.channels.follow.rules import named_arguments, rule, tensors_in, words

POINTWISE = words(
    """add hardswish hardswish_ _prelu_kernel _to_copy clone contiguous detach alias lift masked_fill
    masked_fill_ where native_dropout dropout bernoulli rrelu_with_noise hardtanh hardtanh_ gelu silu_ tril
    triu celu hardsigmoid log_sigmoid_forward nan_to_num addcmul addcdiv lerp type_as to copy expand_as"""
)

REDUCE = words(
    """sum mean amax amin var var_mean std std_mean any all prod logsumexp linalg_vector_norm norm max min
    argmax argmin median nansum count_nonzero"""
)

SCAN = words(
    """_softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod sort topk argsort logcumsumexp
    kthvalue"""
)

SPATIAL = words(
    """max_pool{n}d_with_indices max_pool{n}d avg_pool{n}d _adaptive_avg_pool{n}d adaptive_max_pool{n}d
    upsample_nearest{n}d _upsample_nearest_exact{n}d upsample_bilinear{n}d upsample_linear{n}d
    upsample_trilinear{n}d upsample_bicubic{n}d _upsample_bilinear{n}d_aa reflection_pad{n}d
    replication_pad{n}d adaptive_avg_pool{n}d"""
)


@rule("lift_fresh")
def constant_labels(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """A constant in the model's code, or values that took a way around torch: of a size that stays."""
    f.put_all(out)


@rule(*POINTWISE)
def entry_by_entry(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """What is combined entry by entry stays or goes together."""
    operands = [t for t in tensors_in([*args, *kwargs.values()]) if t.numel() > 1]
    labeled = [f.look(t) for t in operands]
    results = tensors_in([out])
    shape = results[0].shape
    cores = f.merge(shape, [(k.cores, k.shape, k.wild) for k in labeled])
    pure = bool(labeled) and all(k.pure for k in labeled)
    wild = bool(labeled) and all(k.wild for k in labeled)
    for tensor in results:
        f.put(tensor, cores if tensor.shape == shape else [], wild=wild, pure=pure)


@rule(*REDUCE)
def reduce(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Sums, means, maxima: channels over which they run stay."""
    source, n = args[0], args[0].ndim
    options = named_arguments(func, args, kwargs)
    dims = options.get("dim")
    if isinstance(dims, bool) or (dims is None and len(tensors_in(args)) > 1):
        entry_by_entry(f, func, args, kwargs, out)  # max of two tensors
        return
    over = (
        set(range(n)) if dims in (None, []) else {d % n for d in ([dims] if isinstance(dims, int) else dims)}
    )
    labeled = f.look(source)
    why = f"{func.overloadpacket.__name__} mixes the channels"
    kept = [core for c in labeled.cores if (core := f.unmixed(c, over, why)) is not None]
    if not options.get("keepdim", False):
        kept = [core.reshape([s for d, s in enumerate(core.shape) if d not in over]) for core in kept]
    for tensor in tensors_in([out]):
        f.put(tensor, kept, pure=labeled.pure)


@rule(*SCAN)
def scan(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Softmax and the like along one dimension."""
    labeled = f.look(args[0])
    dim = int(named_arguments(func, args, kwargs).get("dim", -1)) % args[0].ndim
    why = f"{func.overloadpacket.__name__.strip('_')} mixes the channels"
    kept = [core for c in labeled.cores if (core := f.unmixed(c, {dim}, why)) is not None]
    for tensor in tensors_in([out]):
        f.put(tensor, kept, pure=labeled.pure)


@rule(*(name.format(n=n) for n in (1, 2, 3) for name in SPATIAL))
def spatial(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Pools, paddings and resizing of maps."""
    name = func.overloadpacket.__name__
    spatial_dims = int(next(c for c in name if c.isdigit()))
    labeled, n = f.look(args[0]), args[0].ndim
    over = set(range(n - spatial_dims, n))
    why = f"{name} mixes the channels"
    kept = [core for c in labeled.cores if (core := f.unmixed(c, over, why)) is not None]
    for tensor in tensors_in([out]):
        f.put(tensor, kept, pure=labeled.pure)


@rule("glu")
def gated_labels(f: Follower, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """a · σ(b) of two halves: each channel with its gate."""
    labeled = f.look(args[0])
    dim = (args[1] if len(args) > 1 else -1) % out.ndim
    cores: list[Tensor] = []
    for core in labeled.cores:
        if dim in varying(core):
            left, right = core.chunk(2, dim)
            f.labels.unite(left, right)
            core = left
        cores.append(core)
    f.put(out, f.joined(cores), pure=labeled.pure)
