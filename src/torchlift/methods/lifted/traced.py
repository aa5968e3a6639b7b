"""Ordinary modules with skip connections in the form K u, M u = V z, z = σ(W u + b).

Between its activations such a model is affine: given the input and the activations z, everything else follows
from running its graph with the outputs of the activations replaced by z.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from torchlift.convex.activations import Activation, Channelwise, recognize
from torchlift.methods.lifted.read import check_reading, check_smooth, graph_of
from torchlift.methods.lifted.unified import Unified


class Traced(Unified):
    """A user's module whose only non-affine parts are activations of the table; its parameters are shared.

    Max-pooling counts as affine: it is as long as the same entries are the largest, and steps follow the
    current ones.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.graph, self.checked = model, graph_of(model), False
        self.steps_with_states: list[int] = []
        self.activations, self.names = list[Activation](), list[str]()
        for number, step in enumerate(self.graph.steps):
            activation = recognize(step.module)
            if activation is not None:
                check_smooth(step.name, activation)
                self.steps_with_states.append(number)
                self.names.append(step.name)
                self.activations.append(along_channels(step.module, activation))

    def run(self, x: Tensor, activations: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """The output with these functions in place of the activations."""
        if not self.checked:
            self.checked = True
            check_reading(self.model, lambda some: self.run(some, self.activations), x)
        return self.graph(x, dict(zip(self.steps_with_states, activations, strict=True)))

    def forward(self, x: Tensor) -> Tensor:
        """The user's own forward pass."""
        return self.model(x)


def along_channels(module: nn.Module, activation: Activation) -> Activation:
    """torch's softmax over dimension 1 is one over the channels of images."""
    return Channelwise(activation) if isinstance(module, nn.Softmax) and module.dim == 1 else activation
