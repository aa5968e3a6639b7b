"""The operations of one call of a model, as values that flow between them."""

import dataclasses
from collections.abc import Callable
from typing import Literal

from torch import Tensor

OpKind = Literal["layer", "norm", "activation", "add", "other"]
TensorFunction = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation: ``output`` = function(``inputs``), values by number; 0 is nobody's."""

    kind: OpKind
    function: str
    name: str
    """Of the module whose weights it uses (layer, norm), else of the innermost module that called it."""
    inputs: tuple[int, ...]
    output: int
    layer: str
    """An activation's: the layer whose output it bends, through norms; empty if that is not a layer's."""
    bend: TensorFunction | None = None
    """An activation as a pure function."""
    window: tuple[int, ...] = ()
    """A max pooling's window, where windows lie side by side."""


@dataclasses.dataclass(frozen=True)
class Flow:
    """The operations of a call in order, and the values that the call gave back."""

    ops: tuple[Op, ...]
    outputs: frozenset[int]

    def users(self, value: int) -> list[Op]:
        """The operations that take a value."""
        return [op for op in self.ops if value in op.inputs]

    def maker(self, value: int) -> Op | None:
        """The operation that made a value; None for what was given."""
        return next((op for op in self.ops if op.output == value), None)

    def of(self, kind: OpKind) -> list[Op]:
        """The operations of a kind."""
        return [op for op in self.ops if op.kind == kind]

    def next(self, op: Op) -> Op | str:
        """The one operation that takes an operation's value, or the reason why there is none."""
        users = self.users(op.output)
        if op.output in self.outputs:
            return "the model's output"
        return users[0] if len(users) == 1 else f"{len(users)} operations"
