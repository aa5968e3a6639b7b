"""The architectures of the papers, as plain modules: no lift knows them, they know no lift."""

from torchlift.models.blocknet import Block, BlockNet
from torchlift.models.conv6 import Conv6
from torchlift.models.gridnet import GridNet
from torchlift.models.lenet import LeNet5
from torchlift.models.mlp import MLP
from torchlift.models.recurrent import CharLSTM
from torchlift.models.residual import ResNet, resnet
from torchlift.models.transformer import GPT
from torchlift.models.vgg import VGG16
from torchlift.models.weights import Init, initialize
from torchlift.models.wide import SHARED, WideResNet, swrn, wide_resnet

__all__ = [
    "GPT",
    "MLP",
    "SHARED",
    "VGG16",
    "Block",
    "BlockNet",
    "CharLSTM",
    "Conv6",
    "GridNet",
    "Init",
    "LeNet5",
    "ResNet",
    "WideResNet",
    "initialize",
    "resnet",
    "swrn",
    "wide_resnet",
]
