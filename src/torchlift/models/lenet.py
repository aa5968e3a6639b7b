"""LeNet-5 as neural lifting trains it on CIFAR-10."""

from collections import OrderedDict

from torch import Tensor, nn

from torchlift.models.weights import Init, initialize


class LeNet5(nn.Module):
    """head(trunk(x)): two 5×5 convolutions (6, 16), then 1024 → 60 → 84 → 10; 70,346 parameters.

    Neural lifting, section 5.1 and Table 5. ``trunk`` ends in the 84-dimensional latent code, after its
    ReLU; ``trunk.conv2`` is the place of the convolutional lifter (appendix C). The paper trains with
    ``dropout=0.4`` and ``init="xavier"``; it does not say where the dropout sits: here it follows the
    ReLU of the 60-unit layer, so that the latent code which projection matches is not itself dropped.
    ``inputs`` is channels, height, width, with height and width multiples of four.
    """

    def __init__(
        self,
        inputs: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        dropout: float = 0.0,
        init: Init = "torch",
    ) -> None:
        super().__init__()
        channels, height, width = inputs
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * (height // 4) * (width // 4), 60),
            relu3=nn.ReLU(),
        )
        if dropout:
            layers["dropout"] = nn.Dropout(dropout)
        layers |= OrderedDict(fc2=nn.Linear(60, 84), relu4=nn.ReLU())
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(84, classes)
        initialize(self, init)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, batch × classes."""
        return self.head(self.trunk(x))
