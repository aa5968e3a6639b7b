"""The configuration of a cut Hugging Face model: rewritten where it can say the new widths."""

import copy
import logging
from typing import Any, cast

import torch
from torch import nn

from torchlift.channels.copies import sharing
from torchlift.channels.equality import output_difference, output_or_none
from torchlift.channels.example_inputs import Example, Output, PinnedOutput
from torchlift.channels.follow.norms import rms_form
from torchlift.channels.layers import CountedGroupNorm, CountedLayerNorm, CountedResponseNorm
from torchlift.core import matches
from torchlift.core.stored import forget

LOG = logging.getLogger(__name__)

COUNTED = (CountedLayerNorm, CountedGroupNorm, CountedResponseNorm)
HEAD_SIZE = ("head_dim", "d_kv")
EPS = ("rms_norm_eps", "layer_norm_epsilon")

BERT = {
    "hidden_size": ("*word_embeddings.weight", 1),
    "intermediate_size": ("*intermediate.dense.weight", 0),
    "num_attention_heads": ("*self.query.weight", 0),
}
LLAMA = {
    "hidden_size": ("*embed_tokens.weight", 1),
    "intermediate_size": ("*mlp.up_proj.weight", 0),
    "num_attention_heads": ("*q_proj.weight", 0),
    "num_key_value_heads": ("*k_proj.weight", 0),
}
WIDTHS: dict[str, dict[str, tuple[str, int]]] = {
    "bert": BERT,
    "roberta": BERT,
    "distilbert": {
        "dim": ("*word_embeddings.weight", 1),
        "hidden_dim": ("*ffn.lin1.weight", 0),
        "n_heads": ("*q_lin.weight", 0),
    },
    "vit": {
        "hidden_size": ("*patch_embeddings.projection.weight", 0),
        "intermediate_size": ("*mlp.fc1.weight", 0),
        "num_attention_heads": ("*attention.q_proj.weight", 0),
    },
    "gpt2": {
        "n_embd": ("*wte.weight", 1),
        "n_inner": ("*mlp.c_fc.weight", 1),
        "n_head": ("*attn.c_proj.weight", 0),
    },
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "t5": {
        "d_model": ("shared.weight", 1),
        "d_ff": ("*DenseReluDense.wo.weight", 1),
        "num_heads": ("*Attention.q.weight", 0),
    },
    "whisper": {
        "d_model": ("*encoder.conv1.weight", 0),
        "encoder_ffn_dim": ("*encoder.layers.*.fc1.weight", 0),
        "decoder_ffn_dim": ("*decoder.layers.*.fc1.weight", 0),
        "encoder_attention_heads": ("*encoder.layers.*.q_proj.weight", 0),
        "decoder_attention_heads": ("*decoder.layers.*.q_proj.weight", 0),
    },
}
"""Family → field of its configuration → the weights, and their dimension, whose size the field says. A field
of heads says that size over the size of a head; the first field is the width of the residual stream."""


class NotUniform(Exception):
    """Why a configuration cannot say what a cut model is."""


def rewrite_config(small: nn.Module, example: Example, output: Output) -> None:
    """Make the configuration of a cut Hugging Face model say its new widths, so that ``save_pretrained`` and
    ``from_pretrained`` give it back; where no configuration can, one line says why and what does work."""
    if not (hasattr(small, "save_pretrained") and hasattr(getattr(small, "config", None), "model_type")):
        return
    name = type(small).__name__
    try:
        fields = new_fields(small)
        rescale_output(small, fields)
        config = copy.deepcopy(small.config)
        change(config, fields)
        check_same_outputs(small, config, example, output)
    except NotUniform as why:
        LOG.warning(
            "%s keeps its old config, and from_pretrained will not take it: %s; or write it with "
            "tl.deploy.save(model, path), read it with tl.deploy.load(path, into=%s(config)).",
            name,
            why,
            name,
        )
        return
    for own in {id(c): c for m in small.modules() if (c := getattr(m, "config", None)) is not None}.values():
        change(own, {key: value for key, value in fields.items() if hasattr(own, key)})


def change(config: Any, fields: dict[str, Any]) -> None:
    """Set the fields of a configuration."""
    for field, value in fields.items():
        setattr(config, field, value)


def new_fields(small: nn.Module) -> dict[str, Any]:
    """The fields of the configuration with the values that the weights have now."""
    config: Any = small.config
    widths = WIDTHS.get(config.model_type)
    if widths is None:
        raise NotUniform(
            f"which fields of its config ({config.model_type}) say which widths is not known here"
        )
    if any(isinstance(module, COUNTED) for module in small.modules()):
        raise NotUniform("its layer norms still divide by the old width, which exact=False lets them forget")
    sizes = {field: field_size(small, field, *axis) for field, axis in widths.items()}
    stream = next(iter(widths))
    heads = [field for field in widths if "head" in field]
    own = next((field for field in HEAD_SIZE if getattr(config, field, None)), None)
    each = getattr(config, own) if own else getattr(config, stream) // getattr(config, heads[0])
    fields: dict[str, Any] = {
        field: size // each if field in heads else size for field, size in sizes.items()
    }
    for field in heads[:1] if own is None else ():
        if sizes[field] != sizes[stream]:
            raise NotUniform(
                f"{field} × the size of a head is {fields[field]} × {each}, {stream} is {sizes[stream]}, and "
                "its config has them equal: choose a ratio that leaves whole heads of both"
            )
    return fields | ({own: each} if own else {}) | new_eps(small)


def field_size(small: nn.Module, field: str, glob: str, dim: int) -> int:
    """The one size that all weights of a field have."""
    sizes = {name: weight.shape[dim] for name, weight in small.named_parameters() if matches(name, glob)}
    if not sizes:
        raise NotUniform(f"no weight is named {glob}, which {field} would say")
    least, most = min(sizes, key=lambda name: sizes[name]), max(sizes, key=lambda name: sizes[name])
    if sizes[least] != sizes[most]:
        alike = "*" + ".".join(least.split(".")[-3:-1]) + "*"
        raise NotUniform(
            f"{field} is one number, {least} has size {sizes[least]} and {most} {sizes[most]}: "
            f'prune with one ratio and scope="local"; if they were, leave the narrow ones with skip="{alike}"'
        )
    return sizes[least]


def new_eps(small: nn.Module) -> dict[str, float]:
    """The ε of RMS norms, which a cut changes, under the name that the configuration has for it."""
    values = {
        getattr(module, form.eps) for module in small.modules() if (form := rms_form(module)) is not None
    }
    field = next((field for field in EPS if hasattr(small.config, field)), None)
    if field is None or not values:
        return {}
    if len(values) > 1:
        raise NotUniform(f"its RMS norms were cut differently, {field} is one number")
    return {field: values.pop()}


def rescale_output(small: nn.Module, fields: dict[str, Any]) -> None:
    """T5 divides by √width before its tied output layer; the norm before makes up for another width."""
    width, whole = fields.get("d_model"), cast(Any, small)
    if getattr(small.config, "scale_decoder_outputs", False) and getattr(small, "model_dim", width) != width:
        norm = whole.decoder.final_layer_norm
        forget(norm, "weight")
        norm.weight.data = (norm.weight.detach().double() * (width / whole.model_dim) ** 0.5).to(norm.weight)
        whole.model_dim = width


def check_same_outputs(small: nn.Module, config: Any, example: Example, output: Output) -> None:
    """Raise where a model of this configuration with these weights is not the cut model."""
    with torch.device("meta"):
        twin = type(small)(config).eval()
    state, theirs = small.state_dict(), twin.state_dict()
    for name in state.keys() ^ theirs.keys():
        raise NotUniform(f"{name} is in one of the two, the cut model or one of its class")
    for name, tensor in state.items():
        if tensor.shape != theirs[name].shape:
            ours, expected = tuple(tensor.shape), tuple(theirs[name].shape)
            raise NotUniform(f"{name} is {ours}, and the widths of the other layers make it {expected}")
    twin.load_state_dict(state, assign=True)
    modules, buffers = dict(twin.named_modules()), dict(small.named_buffers())
    for name in [name for name, buffer in twin.named_buffers() if buffer.is_meta]:
        owner, _, leaf = name.rpartition(".")
        modules[owner].register_buffer(leaf, buffers[name], persistent=False)
    pair = [output_or_none(PinnedOutput(model, output).eval(), example) for model in (sharing(small), twin)]
    if output_difference(*pair) > 1e-5:
        raise NotUniform("its code computes with the old widths")
