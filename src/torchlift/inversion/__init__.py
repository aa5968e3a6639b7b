"""Networks run backward: ``tl.invert``, residual networks with a convex inverse, image quality."""

from torchlift.inversion.calling import invert
from torchlift.inversion.deep import Blocks
from torchlift.inversion.quality import psnr, ssim
from torchlift.inversion.residual import MonotoneResidual
from torchlift.inversion.result import Inversion, InversionError, RangeWarning

__all__ = [
    "Blocks",
    "Inversion",
    "InversionError",
    "MonotoneResidual",
    "RangeWarning",
    "invert",
    "psnr",
    "ssim",
]
