"""The residual block networks of the teacher–student experiments."""

from collections import OrderedDict

from torch import Tensor, nn

from torchlift.models.weights import Init, initialize


class Block(nn.Module):
    """x ↦ relu(x + W₂ relu(W₁ x + b₁) + b₂)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the input's shape and nowhere negative."""
        return (x + self.linear2(self.linear1(x).relu())).relu()


class BlockNet(nn.Module):
    """head(trunk(x)): inputs → width, ReLU, residual blocks, width → outputs.

    Neural lifting, appendix B.2: 5 inputs, width 64, one output; one block (8,769 parameters) for the
    small network, five (42,049) for the large one, both ``init="xavier"``; teachers have seven to nine
    and ``init="kaiming"``.
    """

    def __init__(
        self, blocks: int, inputs: int = 5, width: int = 64, outputs: int = 1, init: Init = "xavier"
    ) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict(stem=nn.Linear(inputs, width), relu=nn.ReLU())
        layers |= OrderedDict((f"block{index}", Block(width)) for index in range(1, blocks + 1))
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(width, outputs)
        initialize(self, init)

    def forward(self, x: Tensor) -> Tensor:
        """Predictions, batch × outputs."""
        return self.head(self.trunk(x))
