"""61 networks for structured pruning: ``MODELS[name]()`` gives a model with random weights and an example.

Small configurations of the classes of transformers, and blocks of our own (``c:``).
"""

import torch
import transformers
from torch import nn
from torch.nn import functional


def trained_norms(m):
    """Norms as after training: no statistic and no shift is zero."""
    for p in m.modules():
        if isinstance(p, nn.modules.batchnorm._BatchNorm):
            p.running_mean.normal_(0, 0.1)
            p.running_var.uniform_(0.01, 0.1)
            if p.affine:
                p.weight.data.uniform_(0.5, 1.5)
                p.bias.data.normal_(0, 0.1)
        if isinstance(p, (nn.LayerNorm, nn.GroupNorm)) and p.weight is not None:
            p.weight.data.uniform_(0.5, 1.5)
            if p.bias is not None:
                p.bias.data.normal_(0, 0.1)
    return m.eval()


images = lambda s=32, b=2: torch.randn(b, 3, s, s)
tokens = lambda v=200, length=16, b=2: torch.randint(5, v, (b, length))


def configured(cls, cfg, x):
    """A model of transformers by its class and configuration, and its input."""
    return lambda: (trained_norms(cls(cfg())), x())


MODELS = {}
MODELS["ViT"] = configured(
    transformers.ViTForImageClassification,
    lambda: transformers.ViTConfig(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=384,
        image_size=32,
        patch_size=4,
        num_labels=10,
    ),
    images,
)
MODELS["DeiT"] = configured(
    transformers.DeiTForImageClassification,
    lambda: transformers.DeiTConfig(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=384,
        image_size=32,
        patch_size=4,
        num_labels=10,
    ),
    images,
)
MODELS["Swin"] = configured(
    transformers.SwinForImageClassification,
    lambda: transformers.SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=24,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
    ),
    images,
)
MODELS["Swinv2"] = configured(
    transformers.Swinv2ForImageClassification,
    lambda: transformers.Swinv2Config(
        image_size=32,
        patch_size=2,
        embed_dim=24,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
    ),
    images,
)
MODELS["ConvNeXt"] = configured(
    transformers.ConvNextForImageClassification,
    lambda: transformers.ConvNextConfig(
        hidden_sizes=[24, 48, 96],
        depths=[2, 2, 2],
        num_stages=3,
        num_labels=10,
        image_size=32,
        layer_scale_init_value=1.0,
    ),
    images,
)
MODELS["ConvNeXtV2"] = configured(
    transformers.ConvNextV2ForImageClassification,
    lambda: transformers.ConvNextV2Config(
        hidden_sizes=[24, 48, 96], depths=[2, 2, 2], num_stages=3, num_labels=10, image_size=32
    ),
    images,
)
MODELS["MobileNetV1"] = configured(
    transformers.MobileNetV1ForImageClassification,
    lambda: transformers.MobileNetV1Config(depth_multiplier=0.25, image_size=64, num_labels=10),
    lambda: images(64),
)
MODELS["MobileNetV2"] = configured(
    transformers.MobileNetV2ForImageClassification,
    lambda: transformers.MobileNetV2Config(depth_multiplier=0.35, image_size=64, num_labels=10),
    lambda: images(64),
)
MODELS["ResNet"] = configured(
    transformers.ResNetForImageClassification,
    lambda: transformers.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64, 128],
        depths=[2, 2, 2],
        layer_type="bottleneck",
        num_labels=10,
    ),
    lambda: images(64),
)
MODELS["RegNet"] = configured(
    transformers.RegNetForImageClassification,
    lambda: transformers.RegNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64, 128],
        depths=[1, 2, 2],
        groups_width=8,
        layer_type="y",
        num_labels=10,
    ),
    lambda: images(64),
)
MODELS["EfficientNet"] = configured(
    transformers.EfficientNetForImageClassification,
    lambda: transformers.EfficientNetConfig(
        image_size=64, width_coefficient=0.5, depth_coefficient=0.5, num_labels=10, hidden_dim=640
    ),
    lambda: images(64),
)
MODELS["MobileViT"] = configured(
    transformers.MobileViTForImageClassification,
    lambda: transformers.MobileViTConfig(
        image_size=64,
        hidden_sizes=[32, 48, 64],
        neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 160],
        num_attention_heads=4,
        num_labels=10,
    ),
    lambda: images(64),
)
MODELS["LeViT"] = configured(
    transformers.LevitForImageClassification,
    lambda: transformers.LevitConfig(
        image_size=64,
        hidden_sizes=[32, 48, 64],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    lambda: images(64),
)
MODELS["PoolFormer"] = configured(
    transformers.PoolFormerForImageClassification,
    lambda: transformers.PoolFormerConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    lambda: images(64),
)
MODELS["BEiT"] = configured(
    transformers.BeitForImageClassification,
    lambda: transformers.BeitConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=192,
        image_size=32,
        patch_size=8,
        use_relative_position_bias=True,
    ),
    images,
)
MODELS["DINOv2"] = configured(
    transformers.Dinov2ForImageClassification,
    lambda: transformers.Dinov2Config(
        hidden_size=96, num_hidden_layers=3, num_attention_heads=6, image_size=32, patch_size=8, num_labels=10
    ),
    images,
)
MODELS["SegFormer"] = configured(
    transformers.SegformerForSemanticSegmentation,
    lambda: transformers.SegformerConfig(
        hidden_sizes=[16, 32, 40, 64],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 4, 4],
        decoder_hidden_size=64,
        num_labels=5,
    ),
    lambda: images(64),
)
MODELS["UperNet-ConvNeXt"] = configured(
    transformers.UperNetForSemanticSegmentation,
    lambda: transformers.UperNetConfig(
        backbone_config=transformers.ConvNextConfig(
            hidden_sizes=[16, 24, 32, 48],
            depths=[1, 1, 1, 1],
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        hidden_size=32,
        num_labels=5,
        auxiliary_channels=16,
        auxiliary_in_channels=32,
    ),
    lambda: images(64),
)
MODELS["DPT"] = configured(
    transformers.DPTForDepthEstimation,
    lambda: transformers.DPTConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=32,
        patch_size=8,
        neck_hidden_sizes=[16, 24, 32, 32],
        fusion_hidden_size=16,
        backbone_out_indices=[0, 1, 2, 3],
        is_hybrid=False,
    ),
    images,
)
MODELS["DETR"] = configured(
    transformers.DetrForObjectDetection,
    lambda: transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=transformers.ResNetConfig(
            embedding_size=16,
            hidden_sizes=[16, 24, 32, 48],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage4"],
        ),
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        num_queries=6,
        num_labels=5,
    ),
    lambda: images(64),
)
MODELS["YOLOS"] = configured(
    transformers.YolosForObjectDetection,
    lambda: transformers.YolosConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=192,
        image_size=[32, 32],
        patch_size=8,
        num_detection_tokens=5,
        num_labels=4,
    ),
    images,
)
MODELS["BERT"] = configured(
    transformers.BertForSequenceClassification,
    lambda: transformers.BertConfig(
        vocab_size=200,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
    ),
    tokens,
)
MODELS["DistilBERT"] = configured(
    transformers.DistilBertForSequenceClassification,
    lambda: transformers.DistilBertConfig(
        vocab_size=200, dim=96, n_layers=3, n_heads=6, hidden_dim=384, max_position_embeddings=64
    ),
    tokens,
)
MODELS["RoBERTa-MLM"] = configured(
    transformers.RobertaForMaskedLM,
    lambda: transformers.RobertaConfig(
        vocab_size=200,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
    ),
    tokens,
)
MODELS["ALBERT"] = configured(
    transformers.AlbertForSequenceClassification,
    lambda: transformers.AlbertConfig(
        vocab_size=200,
        embedding_size=32,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
    ),
    tokens,
)
MODELS["ELECTRA"] = configured(
    transformers.ElectraForSequenceClassification,
    lambda: transformers.ElectraConfig(
        vocab_size=200,
        embedding_size=32,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
    ),
    tokens,
)
MODELS["DeBERTaV2"] = configured(
    transformers.DebertaV2ForSequenceClassification,
    lambda: transformers.DebertaV2Config(
        vocab_size=200,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
        max_relative_positions=32,
    ),
    tokens,
)
MODELS["ModernBERT"] = configured(
    transformers.ModernBertForSequenceClassification,
    lambda: transformers.ModernBertConfig(
        vocab_size=200,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=192,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        attn_implementation="sdpa",
    ),
    tokens,
)
CAUSAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None, "use_cache": False}
MODELS["GPT-2"] = configured(
    transformers.GPT2LMHeadModel,
    lambda: transformers.GPT2Config(vocab_size=200, n_embd=96, n_layer=3, n_head=6, n_positions=64, **CAUSAL),
    tokens,
)
MODELS["OPT"] = configured(
    transformers.OPTForCausalLM,
    lambda: transformers.OPTConfig(
        vocab_size=200,
        hidden_size=96,
        word_embed_proj_dim=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        ffn_dim=384,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        use_cache=False,
    ),
    tokens,
)
MODELS["GPT-NeoX"] = configured(
    transformers.GPTNeoXForCausalLM,
    lambda: transformers.GPTNeoXConfig(
        vocab_size=200,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
        **CAUSAL,
    ),
    tokens,
)
MODELS["BLOOM"] = configured(
    transformers.BloomForCausalLM,
    lambda: transformers.BloomConfig(vocab_size=200, hidden_size=96, n_layer=3, n_head=6, **CAUSAL),
    tokens,
)
SIZES = {
    "vocab_size": 200,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 256,
    "max_position_embeddings": 64,
}
MODELS["Llama"] = configured(
    transformers.LlamaForCausalLM, lambda: transformers.LlamaConfig(**SIZES, **CAUSAL), tokens
)
MODELS["Mistral"] = configured(
    transformers.MistralForCausalLM,
    lambda: transformers.MistralConfig(**SIZES, sliding_window=8, **CAUSAL),
    tokens,
)
MODELS["Qwen2"] = configured(
    transformers.Qwen2ForCausalLM, lambda: transformers.Qwen2Config(**SIZES, **CAUSAL), tokens
)
MODELS["Qwen3"] = configured(
    transformers.Qwen3ForCausalLM, lambda: transformers.Qwen3Config(**SIZES, head_dim=16, **CAUSAL), tokens
)
MODELS["Gemma2"] = configured(
    transformers.Gemma2ForCausalLM, lambda: transformers.Gemma2Config(**SIZES, head_dim=16, **CAUSAL), tokens
)
MODELS["Phi3"] = configured(
    transformers.Phi3ForCausalLM, lambda: transformers.Phi3Config(**SIZES, **CAUSAL), tokens
)
MODELS["Mixtral"] = configured(
    transformers.MixtralForCausalLM,
    lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, **CAUSAL),
    tokens,
)
MODELS["Mamba"] = configured(
    transformers.MambaForCausalLM,
    lambda: transformers.MambaConfig(
        vocab_size=200, hidden_size=48, num_hidden_layers=2, state_size=8, **CAUSAL
    ),
    tokens,
)
MODELS["T5"] = configured(
    transformers.T5ForConditionalGeneration,
    lambda: transformers.T5Config(
        vocab_size=200, d_model=96, d_kv=16, d_ff=256, num_layers=2, num_heads=6, use_cache=False
    ),
    lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(length=8)},
)
MODELS["BART"] = configured(
    transformers.BartForConditionalGeneration,
    lambda: transformers.BartConfig(
        vocab_size=200,
        d_model=96,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=192,
        decoder_ffn_dim=192,
        max_position_embeddings=64,
        use_cache=False,
    ),
    lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(length=8)},
)
MODELS["Whisper"] = configured(
    transformers.WhisperForConditionalGeneration,
    lambda: transformers.WhisperConfig(
        vocab_size=200,
        num_mel_bins=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=192,
        decoder_ffn_dim=192,
        d_model=96,
        max_source_positions=32,
        max_target_positions=32,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    lambda: {"input_features": torch.randn(2, 16, 64), "decoder_input_ids": tokens(length=8)},
)
MODELS["CLIP"] = configured(
    transformers.CLIPModel,
    lambda: transformers.CLIPConfig(
        text_config={
            "vocab_size": 200,
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 32,
            "projection_dim": 32,
            "eos_token_id": 2,
        },
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
            "projection_dim": 32,
        },
        projection_dim=32,
    ),
    lambda: {"input_ids": tokens(), "pixel_values": images()},
)
MODELS["Wav2Vec2"] = configured(
    transformers.Wav2Vec2ForCTC,
    lambda: transformers.Wav2Vec2Config(
        vocab_size=20,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        intermediate_size=192,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
    ),
    lambda: torch.randn(2, 1600),
)
MODELS["HuBERT"] = configured(
    transformers.HubertForCTC,
    lambda: transformers.HubertConfig(
        vocab_size=20,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        intermediate_size=192,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
    ),
    lambda: torch.randn(2, 1600),
)
block = lambda i, o, k=3, s=1, g=1: nn.Sequential(
    nn.Conv2d(i, o, k, s, k // 2, groups=g), nn.BatchNorm2d(o), nn.ReLU()
)


class Flattened(nn.Module):
    """Maps flattened into a linear layer."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 24)
        self.b = block(24, 40, s=2)
        self.f = nn.Linear(40 * 8 * 8, 64)
        self.h = nn.Linear(64, 10)

    def forward(self, x):
        """One call."""
        return self.h(functional.relu(self.f(torch.flatten(functional.max_pool2d(self.b(self.a(x)), 2), 1))))


class Dense(nn.Module):
    """Concatenated maps."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 16)
        self.b = block(16, 12)
        self.c = block(28, 12)
        self.d = block(40, 20, 1)
        self.h = nn.Linear(20, 10)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        y = torch.cat([x, self.b(x)], 1)
        y = torch.cat([y, self.c(y)], 1)
        return self.h(self.d(y).mean((2, 3)))


class Depthwise(nn.Module):
    """An inverted residual."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 16)
        self.e = block(16, 64, 1)
        self.d = block(64, 64, g=64)
        self.p = nn.Conv2d(64, 16, 1)
        self.h = nn.Linear(16, 10)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        return self.h((x + self.p(self.d(self.e(x)))).mean((2, 3)))


class Grouped(nn.Module):
    """A grouped convolution beside a shortcut."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.g = block(32, 32, g=4)
        self.b = block(32, 48, 1)
        self.h = nn.Linear(48, 10)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        return self.h(self.b(x + self.g(x)).mean((2, 3)))


class Excited(nn.Module):
    """Squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.b = block(32, 32)
        self.s1 = nn.Conv2d(32, 8, 1)
        self.s2 = nn.Conv2d(8, 32, 1)
        self.h = nn.Linear(32, 10)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        y = self.b(x)
        w = torch.sigmoid(self.s2(functional.relu(self.s1(functional.adaptive_avg_pool2d(y, 1)))))
        return self.h((x + y * w).mean((2, 3)))


class PixelShuffled(nn.Module):
    """Channels that become places."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.b = block(32, 32)
        self.u = nn.Conv2d(32, 64, 3, padding=1)
        self.p = nn.PixelShuffle(2)
        self.c = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        return self.c(functional.relu(self.p(self.u(x + self.b(x)))))


class UNet(nn.Module):
    """Maps concatenated across scales."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 16)
        self.b = block(16, 32)
        self.m = block(32, 64)
        self.u = nn.ConvTranspose2d(64, 32, 2, 2)
        self.c = block(64, 32)
        self.v = nn.ConvTranspose2d(32, 16, 2, 2)
        self.d = block(32, 16)
        self.h = nn.Conv2d(16, 5, 1)

    def forward(self, x):
        """One call."""
        a = self.a(x)
        b = self.b(functional.max_pool2d(a, 2))
        m = self.m(functional.max_pool2d(b, 2))
        y = self.c(torch.cat([self.u(m), b], 1))
        return self.h(self.d(torch.cat([self.v(y), a], 1)))


class Recurrent(nn.Module):
    """Two directions, two layers."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(50, 32)
        self.l = nn.LSTM(32, 48, 2, batch_first=True, bidirectional=True)
        self.h = nn.Linear(96, 10)

    def forward(self, x):
        """One call."""
        return self.h(self.l(self.e(x))[0][:, -1])


class ConvolutionalRecurrent(nn.Module):
    """Maps flattened into a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 16)
        self.b = block(16, 24, s=2)
        self.l = nn.GRU(24 * 8, 40, batch_first=True)
        self.h = nn.Linear(40, 10)

    def forward(self, x):
        """One call."""
        y = functional.max_pool2d(self.b(self.a(x)), 2)
        return self.h(self.l(y.permute(0, 3, 1, 2).flatten(2))[0][:, -1])


class Shuffle(nn.Module):
    """Groups whose channels are shuffled."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.b = block(32, 32, 1, g=4)
        self.c = block(32, 32, g=32)
        self.d = block(32, 32, 1, g=4)
        self.h = nn.Linear(32, 10)

    def forward(self, x):
        """One call."""
        x = self.a(x)
        y = self.b(x)
        n, c, h, w = y.shape
        y = y.view(n, 4, c // 4, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.h(functional.relu(x + self.d(self.c(y))).mean((2, 3)))


class CrossStage(nn.Module):
    """Channels split and joined."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.b = block(16, 16)
        self.c = block(16, 16)
        self.f = block(48, 24, 1)
        self.h = nn.Linear(24, 10)

    def forward(self, x):
        """One call."""
        u, v = self.a(x).chunk(2, 1)
        w = self.b(v)
        return self.h(self.f(torch.cat([u, v, self.c(w)], 1)).mean((2, 3)))


class Einsum(nn.Module):
    """Attention by einsum."""

    def __init__(self):
        super().__init__()
        self.i = nn.Linear(12, 48)
        self.q = nn.Linear(48, 48, bias=False)
        self.k = nn.Linear(48, 48, bias=False)
        self.v = nn.Linear(48, 48, bias=False)
        self.o = nn.Linear(48, 48)
        self.n = nn.LayerNorm(48)
        self.h = nn.Linear(48, 10)

    def forward(self, x):
        """One call."""
        x = self.i(x)
        r = lambda t: t.unflatten(-1, (4, 12))
        a = torch.einsum("bihd,bjhd->bhij", r(self.q(x)), r(self.k(x))).softmax(-1)
        y = torch.einsum("bhij,bjhd->bihd", a, r(self.v(x))).flatten(2)
        return self.h(self.n(x + self.o(y)).mean(1))


class Temporal(nn.Module):
    """Dilated convolutions and a weight norm."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(8, 32, 3, padding=2)
        self.b = nn.Conv1d(32, 32, 3, padding=4, dilation=2)
        self.w = nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 3, padding=2))
        self.h = nn.Linear(32, 5)

    def forward(self, x):
        """One call."""
        x = functional.relu(self.a(x)[..., :-2])
        x = functional.relu(x + self.b(x)[..., :-4])
        return self.h(functional.relu(self.w(x)[..., :-2]).mean(-1))


class FiLM(nn.Module):
    """A second input that scales and shifts maps."""

    def __init__(self):
        super().__init__()
        self.a = block(3, 32)
        self.z = nn.Linear(7, 64)
        self.b = block(32, 24)
        self.gn = nn.GroupNorm(4, 24)
        self.h = nn.Linear(24, 10)

    def forward(self, x, c):
        """One call."""
        g, b = self.z(c)[:, :, None, None].chunk(2, 1)
        return self.h(self.gn(self.b(self.a(x) * g + b)).mean((2, 3)))


for n, c, x in [
    ("c:flatten", Flattened, images),
    ("c:densenet", Dense, images),
    ("c:depthwise", Depthwise, images),
    ("c:grouped", Grouped, images),
    ("c:SE", Excited, images),
    ("c:pixelshuffle", PixelShuffled, images),
    ("c:unet", UNet, images),
    ("c:bilstm", Recurrent, lambda: torch.randint(0, 50, (2, 9))),
    ("c:crnn-gru", ConvolutionalRecurrent, images),
    ("c:shufflenet", Shuffle, images),
    ("c:split-csp", CrossStage, images),
    ("c:einsum-attn", Einsum, lambda: torch.randn(2, 7, 12)),
    ("c:tcn-weightnorm", Temporal, lambda: torch.randn(2, 8, 20)),
    ("c:film-2inputs", FiLM, lambda: (torch.randn(2, 3, 16, 16), torch.randn(2, 7))),
]:
    MODELS[n] = lambda c=c, x=x: (trained_norms(c()), x())
for n, make in [
    (
        "c:nn.TransformerEncoder",
        lambda: nn.Sequential(
            nn.Linear(12, 48),
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(48, 4, 96, batch_first=True), 2, enable_nested_tensor=False
            ),
            nn.Linear(48, 10),
        ),
    )
]:
    MODELS[n] = lambda make=make: (trained_norms(make()), torch.randn(2, 7, 12))
