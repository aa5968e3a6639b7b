"""From a trained model to a small one: its real size, cost and speed."""

from torchlift.deploy.measuring import Measured, measure

__all__ = ["Measured", "measure"]
