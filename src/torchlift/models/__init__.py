"""The architectures of the papers, as plain modules: no lift knows them, they know no lift."""

from torchlift.models.awd_lstm import AwdLSTM
from torchlift.models.blocknet import Block, BlockNet
from torchlift.models.conv6 import Conv6
from torchlift.models.dcgan import Gan
from torchlift.models.gridnet import GridNet
from torchlift.models.imagenet import SHARED_50, ImageNetResNet, resnet18, resnet50, wide_resnet50
from torchlift.models.lenet import LeNet5
from torchlift.models.mlp import MLP
from torchlift.models.mobile import mobilenet, shufflenet
from torchlift.models.recurrent import CharLSTM
from torchlift.models.residual import ResNet, resnet
from torchlift.models.transformer import GPT
from torchlift.models.translator import Translator
from torchlift.models.vgg import VGG16
from torchlift.models.weights import Init, initialize
from torchlift.models.wide import SHARED, WideResNet, swrn, wide_resnet

__all__ = [
    "GPT",
    "MLP",
    "SHARED",
    "SHARED_50",
    "VGG16",
    "AwdLSTM",
    "Block",
    "BlockNet",
    "CharLSTM",
    "Conv6",
    "Gan",
    "GridNet",
    "ImageNetResNet",
    "Init",
    "LeNet5",
    "ResNet",
    "Translator",
    "WideResNet",
    "initialize",
    "mobilenet",
    "resnet",
    "resnet18",
    "resnet50",
    "shufflenet",
    "swrn",
    "wide_resnet",
    "wide_resnet50",
]
