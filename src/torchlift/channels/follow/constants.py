"""Zeros and constants followed from the weights through the operations: what cannot depend on the input.

Every entry of every tensor has a grade. It VARIES with the input, it is FIXED for all inputs of one shape
(the border that padding leaves, a share of one over the number of positions), or it is CONSTANT. Weights are
constant, inputs vary, and

    grade(a ∘ b) = min(grade a, grade b),        grade(a · b) ≥ grade a  where a is a zero that does not vary,

so that an entry of a matrix product is constant where every term has two constants or one constant zero. The
value of what does not vary is read off the run at hand: no other input gives another one. Grades are kept at
size 1 along dimensions where they are the same. What has no rule varies, unless it is made of weights alone.
Numbers are taken to be finite: 0 · ∞ is not considered.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from torchlift.channels.follow.labels import compressed_labels
from torchlift.channels.follow.rules import named_arguments, pad, tensors_in, words

VARIES, FIXED, CONSTANT = 0, 1, 2
LEAVES = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}
"""Ways out of torch that no operation shows."""

Grade = Tensor
"""Numbers of uint8 that broadcast over a tensor, with as many dimensions."""

ConstantRule = Callable[["Constants", Any, Sequence[Any], Mapping[str, Any], Any], None]
GRADES: dict[Any, ConstantRule] = {}


def graded(names: str) -> Callable[[ConstantRule], ConstantRule]:
    """Register a rule for operations of aten by name."""

    def put(function: ConstantRule) -> ConstantRule:
        for name in words(names):
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None:
                GRADES[packet] = function
        return function

    return put


class Constants:
    """The grades of all tensors of a run that are alive; one that was written to since has none."""

    def __init__(self) -> None:
        self.table: Any = WeakTensorKeyDictionary()
        self.averages: Any = WeakTensorKeyDictionary()
        """Tensors that sum to one along their last dimension: what attention weighs with."""
        self.pure: Callable[[Tensor], bool] = lambda _tensor: False
        self.before: dict[int, tuple[Grade, Tensor]] = {}
        """Of tensors that an operation writes to, the grades they had, and where they were zero."""
        self.chunks: Any = WeakTensorKeyDictionary()
        """Parts of a tensor of which torch knows that writing to one leaves the others alone, by a number."""
        self.numbers = itertools.count(1)
        self.escaped = False
        """The model's code has seen numbers that depend on the input, or how many there are: it may do
        something else for another one."""
        self.forced: tuple[bool, ...] = ()
        """What the model's code is told where it asks whether something holds that depends on the input."""
        self.answers: list[bool] = []
        """What it was told so far."""
        self.now = 0
        self.written: dict[int, int] = {}
        """When an operation last wrote to a piece of memory."""

    def of(self, tensor: Tensor) -> Grade:
        """The grade of every entry."""
        if id(tensor) in self.before:
            return self.before[id(tensor)][0]
        entry = self.table.get(tensor)
        if entry is None or entry[1] < self.written.get(self.memory(tensor), 0):
            return one_grade(VARIES, tensor.ndim)
        return entry[0]

    def put(self, tensor: Tensor, grade: Grade | int) -> None:
        """Remember a grade; VARIES needs no remembering."""
        grade = one_grade(grade, tensor.ndim) if isinstance(grade, int) else compressed_labels(grade)
        if grade.numel() == 1 and not bool(grade):
            self.table.pop(tensor, None)
        else:
            self.table[tensor] = grade, self.now

    def zero(self, tensor: Tensor, grade: Grade) -> Tensor:
        """Boolean: where a tensor is zero whatever the input."""
        if id(tensor) in self.before:
            return self.before[id(tensor)][1]
        return (tensor == 0) & (grade > 0) if bool(grade.any()) else torch.zeros_like(grade, dtype=torch.bool)

    def prepare(self, func: Any, args: Sequence[Any]) -> None:
        """Before an operation: if it writes, hold on to the grades that there are, and note where."""
        self.now += 1
        self.before = {}
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in tensors_in([value]):
                        grade = self.of(tensor)
                        self.before[id(tensor)] = grade, self.zero(tensor, grade)
                        self.written[self.memory(tensor)] = self.now
                        self.written[storage(tensor)] = self.now

    def memory(self, tensor: Tensor) -> int:
        """The piece of memory a tensor lies in."""
        return self.chunks.get(tensor) or storage(tensor)

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Grade what an operation gave."""
        self.grade(func, args, kwargs, out)
        self.before = {}

    def grade(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Find the rule of an operation and apply it."""
        operands = tensors_in([*args, *kwargs.values()])
        if tells(func, operands) and type(out) is not bool:
            self.leave(operands)
        rule = GRADES.get(func.overloadpacket)
        if rule is None and torch.Tag.pointwise in func.tags:
            rule = least_grade
        if self.escaped or torch.Tag.nondeterministic_seeded in func.tags:
            self.put_all(out, VARIES)
        elif rule is not None:
            rule(self, func, args, kwargs, out)
        elif all(self.pure(tensor) for tensor in operands):
            self.put_all(out, min([int(self.of(tensor).min()) for tensor in operands], default=FIXED))
        else:
            self.put_all(out, VARIES)

    def leave(self, tensors: Sequence[Tensor]) -> None:
        """The model's code learns about the entries of tensors."""
        self.escaped |= self.vary(tensors)

    def vary(self, tensors: Sequence[Tensor]) -> bool:
        """Whether some entries depend on the input."""
        return any(not bool(self.of(tensor).all()) for tensor in tensors)

    def answer(self, func: Any, args: Sequence[Any], out: Any) -> Any:
        """What an operation gave; whether something holds that depends on the input, as it is to be told."""
        if type(out) is bool and tells(func, operands := tensors_in(args)) and self.vary(operands):
            number = len(self.answers)
            out = self.forced[number] if number < len(self.forced) else out
            self.answers.append(out)
        return out

    def other_ways(self) -> list[tuple[bool, ...]]:
        """The answers that the model's code has not been told yet, each up to the first that is another."""
        answers = tuple(self.answers)
        return [(*answers[:k], not answers[k]) for k in range(len(self.forced), len(answers))]

    def put_all(self, out: Any, grade: int) -> None:
        """One grade for all that an operation gave."""
        for tensor in tensors_in([out]):
            self.put(tensor, grade)


class Leaving(TorchFunctionMode):
    """Notes what leaves torch in ways that no operation shows."""

    def __init__(self, constants: Constants) -> None:
        super().__init__()
        self.constants = constants

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, then do it."""
        if func in LEAVES:
            self.constants.leave(args[:1])
        return func(*args, **(kwargs or {}))


def tells(func: Any, operands: Sequence[Tensor]) -> bool:
    """Whether an operation gives Python a number, or a tensor with as many entries as numbers decide."""
    if func.overloadpacket is torch.ops.aten.index:
        return any(index.dtype in (torch.bool, torch.uint8) for index in operands[1:])
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def storage(tensor: Tensor) -> int:
    """A number for the memory under a tensor and all its views."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def one_grade(grade: int, ndim: int) -> Grade:
    """One grade for a whole tensor."""
    return torch.full((1,) * ndim, grade, dtype=torch.uint8)


def capped(grade: Grade, where: Tensor) -> Grade:
    """At most FIXED where said."""
    return torch.where(where, grade.clamp(max=FIXED), grade)


def least(grades: Sequence[Grade], ndim: int) -> Grade:
    """The least of some grades, broadcast."""
    lowest_grade = one_grade(CONSTANT, ndim)
    for grade in grades:
        lowest_grade = torch.minimum(lowest_grade, pad(grade, ndim))
    return lowest_grade


def lowest(grade: Grade, dims: Sequence[int]) -> Grade:
    """The least along some dimensions, which stay with size 1."""
    return grade.amin(tuple(dims), keepdim=True) if dims else grade


def unchanging(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Boolean: where a tensor does not change along some dimensions, but for rounding."""
    if not dims or tensor.numel() == 0:
        return torch.ones((1,) * tensor.ndim, dtype=torch.bool)
    low, high = tensor.amin(tuple(dims), keepdim=True), tensor.amax(tuple(dims), keepdim=True)
    return high - low <= 1e-6 * torch.maximum(low.abs(), high.abs())


@graded("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor")
def constant(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """The same number everywhere."""
    c.put_all(out, CONSTANT)


@graded("lift_fresh")
def brought_in(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A number written into the model's code; an array may have left torch and come back."""
    c.put(out, VARIES if out.ndim else CONSTANT)


@graded("fill_ zero_")
def filled(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """One number for all entries."""
    c.put(out, least([c.of(t) for t in tensors_in(args[1:])], out.ndim))


@graded(
    """add hardswish hardswish_ _prelu_kernel _to_copy clone contiguous detach alias masked_fill masked_fill_
    where dropout hardtanh hardtanh_ gelu silu_ tril triu celu hardsigmoid nan_to_num addcmul addcdiv lerp
    type_as to copy"""
)
def least_grade(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """The least of all operands."""
    operands = tensors_in([*args, *kwargs.values()])
    for tensor in tensors_in([out]):
        c.put(tensor, least([c.of(t) for t in operands], tensor.ndim))
        if func.overloadpacket.__name__ in COPIES and operands[0] in c.averages:
            c.averages[tensor] = True


COPIES = {"clone", "_to_copy", "contiguous", "detach", "alias"}


@graded("copy_")
def written_grade(
    c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """What was written; a tensor of which this is a part has no grade any more."""
    c.put(out, pad(c.of(args[1]), out.ndim))


@graded("mul mul_ div div_")
def multiplied(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A factor that is zero decides; of a fraction the numerator."""
    factors = args[:2] if func.overloadpacket.__name__.startswith("mul") else args[:1]
    numbers = [a for a in factors if not isinstance(a, Tensor)]
    if any(number == 0 for number in numbers):
        return c.put(out, CONSTANT)
    grades = [c.of(t) for t in args[:2] if isinstance(t, Tensor)]
    grade = least(grades, out.ndim)
    for factor in factors:
        if isinstance(factor, Tensor) and bool((own := c.of(factor)).any()):
            zero = c.zero(factor, own)
            grade = torch.maximum(grade, pad(torch.where(zero, own, VARIES), out.ndim))
    return c.put(out, grade)


@graded("mm bmm")
def product_grade(
    c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """A[…, m, k] B[…, k, n]."""
    c.put(out, of_product(c, args[0], args[1]))


@graded("addmm baddbmm")
def affine_map_grade(
    c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """C + A B."""
    c.put(out, least([c.of(args[0]), of_product(c, args[1], args[2])], out.ndim))


def of_product(c: Constants, a: Tensor, b: Tensor) -> Grade:
    """An entry is at least of a grade where no term is below it; weights that sum to one keep a constant."""
    ga, gb = c.of(a), c.of(b)
    grade = terms(ga, c.zero(a, ga), gb, c.zero(b, gb), a.shape[-1])
    if a in c.averages and bool(gb.any()):
        kept = lowest(gb, [b.ndim - 2])
        grade = torch.maximum(grade, torch.where(unchanging(b, [b.ndim - 2]), kept, VARIES))
    return grade


def terms(ga: Grade, za: Tensor, gb: Grade, zb: Tensor, k: int) -> Grade:
    """min over k of the grade of a[…, m, k] · b[…, k, n], from grades and from zeros that do not vary.

    A term is below a level where a is and b is no such zero, or the other way round.
    """
    grade = one_grade(VARIES, ga.ndim)
    for level in {*ga.unique().tolist(), *gb.unique().tolist()} - {VARIES}:
        low_a, low_b = (ga < level), (gb < level)
        live_a, live_b = ~(za & ~low_a), ~(zb & ~low_b)
        below = count_products(low_a, live_b, k) + count_products(live_a, low_b, k)
        grade = torch.maximum(grade, (below == 0).to(torch.uint8) * level)
    return grade


def count_products(a: Tensor, b: Tensor, k: int) -> Tensor:
    """How many k there are with a[…, m, k] and b[…, k, n]."""
    if not bool(a.any()) or not bool(b.any()):
        return torch.zeros((1,) * a.ndim)
    if a.numel() == 1:
        return b.sum(-2, keepdim=True) if b.shape[-2] == k else b.float() * k
    a = a.expand(*a.shape[:-1], k).float()
    b = b.expand(*b.shape[:-2], k, b.shape[-1]).float()
    return a @ b


@graded("convolution _convolution")
def convolved(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Channel by channel; a constant other than zero is only FIXED behind padding or a transposed kernel."""
    x, kernel, bias = args[:3]
    padding, transposed, groups = args[4], bool(args[6]), int(args[8])
    mixed_dims = [0, *range(2, x.ndim)]
    gx = lowest(c.of(x), mixed_dims).expand(1, x.shape[1], *(1,) * (x.ndim - 2)).flatten()
    zx = (x == 0).all(0).flatten(1).all(1) & (gx > 0) if bool(gx.any()) else torch.zeros_like(gx).bool()
    if transposed or any(padding):
        gx = capped(gx, ~zx)
    gk = lowest(c.of(kernel), range(2, kernel.ndim)).flatten(1).expand(kernel.shape[:2])
    zk = (kernel == 0).flatten(2).all(2) & (gk > 0)
    if transposed:  # (inputs, outputs of a group) → (outputs of all groups, inputs of a group)
        gk, zk = (t.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1) for t in (gk, zk))
    gx, zx = (t.reshape(groups, -1, 1) for t in (gx, zx))
    gk, zk = (t.unflatten(0, (groups, -1)) for t in (gk, zk))
    grade = terms(gk, zk, gx, zx, gk.shape[-1]).expand(groups, gk.shape[1], 1).reshape(1, -1)
    grade = grade.reshape(1, -1, *(1,) * (out.ndim - 2))
    if isinstance(bias, Tensor):
        grade = torch.minimum(grade, c.of(bias).reshape(1, -1, *(1,) * (out.ndim - 2)))
    c.put(out, grade)


@graded(
    """sum mean amax amin var var_mean std std_mean any all prod logsumexp linalg_vector_norm norm max min
    nansum"""
)
def reduced_grade(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Zeros stay, means of one number too; what else is made of many numbers depends on how many they are."""
    x, n = args[0], args[0].ndim
    options = named_arguments(func, args, kwargs)
    dims = options.get("dim")
    if isinstance(dims, bool) or (dims is None and len(tensors_in(args)) > 1):
        return least_grade(c, func, args, kwargs, out)
    grade = c.of(x)
    if not bool(grade.any()):
        return c.put_all(out, VARIES)
    over = (
        list(range(n)) if dims in (None, []) else [d % n for d in ([dims] if isinstance(dims, int) else dims)]
    )
    if not c.pure(x):
        same = (
            unchanging(x, over) if func.overloadpacket.__name__ in MEANS else (x == 0).all(over, keepdim=True)
        )
        grade = capped(lowest(grade, over), ~same)
    grade = lowest(grade, over)
    if not options.get("keepdim", False):
        grade = grade.reshape([s for d, s in enumerate(grade.shape) if d not in over])
    for tensor in tensors_in([out]):
        c.put(tensor, grade)
    return None


MEANS = {"mean", "amax", "amin", "max", "min", "any", "all"}


@graded("_softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod sort topk argsort")
def scanned(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Everything along the dimension decides; the number of positions too."""
    dim = int(named_arguments(func, args, kwargs).get("dim", -1)) % max(args[0].ndim, 1)
    grade = lowest(c.of(args[0]), [dim]) if args[0].ndim else c.of(args[0])
    for tensor in tensors_in([out]):
        c.put(tensor, grade if c.pure(args[0]) else grade.clamp(max=FIXED))
        if (
            func.overloadpacket.__name__ in ("_softmax", "_safe_softmax", "softmax")
            and dim == tensor.ndim - 1
        ):
            c.averages[tensor] = True


POOLS = """max_pool{n}d_with_indices max_pool{n}d avg_pool{n}d _adaptive_avg_pool{n}d adaptive_max_pool{n}d
    upsample_nearest{n}d _upsample_nearest_exact{n}d upsample_bilinear{n}d upsample_linear{n}d
    upsample_trilinear{n}d upsample_bicubic{n}d _upsample_bilinear{n}d_aa reflection_pad{n}d
    replication_pad{n}d adaptive_avg_pool{n}d"""


@graded(" ".join(POOLS.format(n=n) for n in (1, 2, 3)))
def pooled(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """A map that is one number stays that number, unless zeros are padded into a mean."""
    name, x = func.overloadpacket.__name__, args[0]
    mixed_dims = range(x.ndim - int(next(ch for ch in name if ch.isdigit())), x.ndim)
    grade = lowest(c.of(x), mixed_dims)
    if bool(grade.any()):
        zero = (x == 0).all(list(mixed_dims), keepdim=True)
        options = named_arguments(func, args, kwargs)
        pads = name.startswith("avg_pool") and (any(options["padding"]) or options["ceil_mode"])
        mixed = torch.ones_like(zero) if pads else ~unchanging(x, list(mixed_dims))
        grade = capped(grade, mixed & ~zero)
    c.put(tensors_in([out])[0], grade)


@graded(
    """native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit cudnn_batch_norm
    native_group_norm native_layer_norm"""
)
def normed(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """A weight of zero leaves the bias; else all that is averaged over decides."""
    options, x, result = named_arguments(func, args, kwargs), args[0], tensors_in([out])[0]
    weight, bias = options.get("weight"), options.get("bias")
    features = "normalized_shape" in options
    shape = [1] * x.ndim if features else [1, -1, *[1] * (x.ndim - 2)]

    def shaped(tensor: Tensor) -> Tensor:
        return tensor if features else tensor.reshape(shape)

    grades = [shaped(c.of(t)) for t in (weight, bias) if isinstance(t, Tensor)]
    affine_grade = least(grades, x.ndim)
    grade = c.of(x)
    if features or "group" in options or options.get("training", False):
        grade = one_grade(min(int(grade.min()), FIXED), x.ndim)
    else:
        grade = least([grade, *(shaped(c.of(t)) for t in tensors_in(args[3:5]))], x.ndim)
    grade = torch.minimum(grade, affine_grade)
    if isinstance(weight, Tensor):
        off = shaped(weight == 0)
        grade = torch.maximum(grade, torch.where(pad(off, x.ndim), affine_grade, VARIES))
    c.put(result, grade)


@graded("glu")
def gated(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """a · σ(b) of two halves."""
    x = args[0]
    dim = (args[1] if len(args) > 1 else -1) % x.ndim
    grade = c.of(x)
    if not bool(grade.any()):
        return c.put(out, VARIES)
    left, right = grade.expand(x.shape).chunk(2, dim)
    zero = c.zero(x.chunk(2, dim)[0], left)
    return c.put(out, torch.maximum(torch.minimum(left, right), torch.where(zero, left, VARIES)))


@graded(
    """view _unsafe_view reshape _reshape_alias permute transpose t expand squeeze unsqueeze split
    split_with_sizes unbind chunk unsafe_chunk unsafe_split unsafe_split_with_sizes flip roll repeat
    pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diagonal unfold repeat_interleave
    movedim"""
)
def move_grades(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Grades are moved as entries are."""
    x, results = args[0], tensors_in([out])
    grade = c.of(x)
    if func.overloadpacket.__name__.startswith("unsafe_"):
        for tensor in results:
            c.chunks[tensor] = -next(c.numbers)
    if grade.numel() == 1:
        for tensor in results:
            c.put(tensor, int(grade))
            if x in c.averages and tensor.shape[-1:] == x.shape[-1:]:
                c.averages[tensor] = True
        return
    full = grade.expand(x.shape)
    views = func.overloadpacket.__name__ in ("view", "_unsafe_view", "_reshape_alias")
    results_of_ones = [full.reshape(out.shape)] if views else tensors_in([func(full, *args[1:], **kwargs)])
    for tensor, piece in zip(results, results_of_ones, strict=True):
        c.put(tensor, piece)


@graded("transpose_ t_ unsqueeze_ squeeze_")
def turn_grades(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """A tensor turned in place: its shape is new already, its grades follow."""
    grade = c.of(args[0])
    c.put(out, func(grade.clone(), *args[1:]) if len(args) > 1 or "squeeze" not in func.name() else VARIES)


@graded("as_strided_")
def restrided(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Another order in memory of the same entries, as far as the shape tells."""
    grade = c.of(args[0])
    c.put(out, grade if grade.numel() == 1 else VARIES)


@graded("slice select narrow index_select gather index take_along_dim embedding")
def picked_grade(
    c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """Of what is the same in all places, any; of others FIXED, or what the numbers of the places are."""
    name, x = func.overloadpacket.__name__, args[0]
    grade = c.of(x)
    if not bool(grade.any()) or not x.ndim:
        return c.put(out, VARIES)
    options = named_arguments(func, args, kwargs)
    if name == "embedding":
        dims, move = [0], lambda full: full[args[1]]
    elif name == "index":
        dims = [d for d, index in enumerate(args[1]) if index is not None]
        move = lambda full: func(full, *args[1:])
    else:
        dims, move = [int(options["dim"]) % x.ndim], lambda full: func(full, *args[1:], **kwargs)
    if (name == "select" and args[2] >= 0) or (
        name == "slice" and from_the_start(options, c.pure(x), out, x)
    ):
        return c.put(out, move(grade.expand(x.shape)))
    numbers = [c.of(t) for t in tensors_in([*args[1:], *kwargs.values()])]
    cap = min([FIXED, *(int(g.min()) for g in numbers)])
    same = unchanging(x, dims)
    grade = torch.where(same, lowest(grade, dims), grade.clamp(max=cap))
    return c.put(out, move(grade.expand(x.shape)))


def from_the_start(options: Mapping[str, Any], pure: bool, out: Tensor, x: Tensor) -> bool:
    """Whether a slice is the same whatever the shape: counted from the start, and not the first positions of
    a table that may be longer than this input."""
    return (options["start"] or 0) >= 0 and (not pure or out.shape == x.shape)


@graded("cat stack")
def joined_grade(
    c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor
) -> None:
    """Side by side."""
    if all(not bool(c.of(t).any()) for t in args[0]):
        return c.put(out, VARIES)
    return c.put(out, func([c.of(t).expand(t.shape) for t in args[0]], *args[1:], **kwargs))


@graded("constant_pad_nd")
def padded(c: Constants, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Zeros around zeros stay zeros; else what is there depends on the shape."""
    x, fill = args[0], args[2] if len(args) > 2 else 0
    grade = c.of(x)
    if not bool(grade.any()):
        return c.put(out, VARIES)
    grade = capped(grade, torch.ones_like(grade, dtype=torch.bool) if fill else x != 0)
    return c.put(out, func(grade.expand(x.shape), args[1], FIXED if fill else CONSTANT))
