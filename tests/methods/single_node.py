"""One weight in the coordinates of a lift."""

from torch import Tensor, nn

from torchlift.core import Lift, Node, Task, nodes


def node_of(lift: Lift, weight: Tensor) -> Node:
    """The node that a lift puts in the place of a matrix."""
    layer = nn.Linear(weight.shape[1], len(weight), bias=False, dtype=weight.dtype)
    layer.weight = nn.Parameter(weight.clone())
    (node,) = (node for _, node in nodes(lift.lift(Task(layer, "mse"))))
    return node
