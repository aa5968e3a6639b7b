"""What a stored program may do: an allow-list of aten's operations. Whatever is not in it is refused by name.

Each is pure, gives results whose shapes depend on shapes alone, and reads nothing but its arguments. Kernels
trust some of theirs: :mod:`torchlift.packed.arguments` checks those before a kernel sees them.
"""

import operator
from typing import Any

import torch

from torchlift.packed.budget import PackedError

ENTRYWISE = """
    abs ceil floor round trunc sign neg exp expm1 log log1p log2 sqrt rsqrt square reciprocal sin cos tan sinh
    cosh tanh asin acos atan erf erfc sigmoid log_sigmoid relu relu6 leaky_relu elu selu celu gelu glu silu
    mish softplus hardsigmoid hardswish hardtanh hardshrink softshrink threshold prelu rrelu isnan isinf
    isfinite bitwise_not logical_not nan_to_num clamp clamp_min clamp_max clamp.Tensor clamp_min.Tensor
    clamp_max.Tensor add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar rsub.Tensor mul.Tensor mul.Scalar
    div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode floor_divide fmod.Scalar fmod.Tensor
    remainder.Scalar remainder.Tensor pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar atan2 maximum minimum
    max.other min.other lerp.Scalar lerp.Tensor addcmul addcdiv eq.Scalar eq.Tensor ne.Scalar ne.Tensor
    lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor __and__.Scalar
    __and__.Tensor __or__.Scalar __or__.Tensor __xor__.Scalar __xor__.Tensor __lshift__.Scalar
    __rshift__.Scalar bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar
    bitwise_xor.Tensor bitwise_xor.Scalar logical_and logical_or logical_xor where.self where.ScalarOther
    where.ScalarSelf where.Scalar masked_fill.Scalar masked_fill.Tensor
"""
REDUCING = """
    sum sum.dim_IntList mean mean.dim prod prod.dim_int amax amin max min max.dim min.dim argmax argmin any
    any.dim any.dims all all.dim all.dims std.dim std.correction var.dim var.correction var_mean.correction
    logsumexp linalg_vector_norm cumsum cumprod diff sort argsort topk softmax.int log_softmax.int _softmax
    _log_softmax cosine_similarity
"""
SHAPING = """
    view reshape _unsafe_view flatten.using_ints unflatten.int expand expand_as view_as permute transpose.int
    t squeeze squeeze.dim squeeze.dims unsqueeze slice.Tensor select.int narrow split.Tensor split_with_sizes
    chunk unbind.int diagonal unfold cat stack repeat tile repeat_interleave.self_int roll flip movedim.int
    tril triu pad constant_pad_nd pixel_shuffle pixel_unshuffle channel_shuffle meshgrid.indexing meshgrid
    clone contiguous alias detach lift_fresh_copy type_as _to_copy to.dtype to.dtype_layout to.device to.other
"""
MAKING = """
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full empty.memory_format empty_like
    new_empty arange arange.start arange.start_step linspace eye eye.m scalar_tensor fill.Scalar one_hot
    sym_size.int sym_numel
"""
PICKING = """
    embedding index.Tensor index_select gather take_along_dim scatter.src scatter.value scatter_add index_add
"""
LAYERS = """
    linear addmm mm bmm mv dot matmul baddbmm outer bilinear einsum conv1d conv2d conv3d conv1d.padding
    conv2d.padding conv3d.padding conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d im2col col2im upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec
    upsample_linear1d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec upsample_trilinear3d.vec layer_norm
    native_layer_norm group_norm batch_norm instance_norm rms_norm _native_batch_norm_legit_no_training
    scaled_dot_product_attention dropout lstm.input gru.input rnn_tanh.input rnn_relu.input
"""

ALLOWED = frozenset(
    f"aten.{name if '.' in name else name + '.default'}"
    for names in (ENTRYWISE, REDUCING, SHAPING, MAKING, PICKING, LAYERS)
    for name in names.split()
)
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "neg",
    "getitem",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
)
CHECKS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")
"""What torch's exporter asserts about the example; not part of the computation."""
INSTEAD = {
    # memory that is not written would show what was there before
    "empty": "zeros",
    "empty_like": "zeros_like",
    "new_empty": "new_zeros",
    # whether a view can be had depends on strides, which kernels choose and a file does not keep
    "view": "reshape",
    "_unsafe_view": "reshape",
}


def operation(name: Any) -> Any:
    """The function a step names, if the list has it."""
    if isinstance(name, str) and name in CHECKS:
        return unchecked
    if isinstance(name, str) and name.startswith("operator.") and name[9:] in ARITHMETIC:
        return getattr(operator, name[9:])
    if not isinstance(name, str) or name not in ALLOWED:
        raise PackedError(f"operation {name!r} is not allowed in a model file.")
    _, packet, overload = name.split(".")
    if packet in INSTEAD:
        packet, overload = INSTEAD[packet], "default"
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if found is None or found._schema.is_mutable:
        raise PackedError(f"operation {name!r} is not in this version of torch.")
    return found


def unchecked(*_: Any, **__: Any) -> None:
    """An assertion of the exporter, passed over."""
