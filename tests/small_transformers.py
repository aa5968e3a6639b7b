"""Small models of ``transformers`` with random weights, for tests on models nobody here wrote."""

import pytest
from torch import nn

transformers = pytest.importorskip("transformers")


def vit(width: int = 32, depth: int = 2) -> nn.Module:
    """A ViT on 16 × 16 images, three classes."""
    config = transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=4, intermediate_size=2 * width,
        image_size=16, patch_size=8, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def mobile() -> nn.Module:
    """MobileNetV2 at a quarter of its width on 32 × 32 images, three classes."""
    config = transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.25, num_labels=3)
    return transformers.MobileNetV2ForImageClassification(config)
