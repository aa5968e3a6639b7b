"""Post-training: a trained network and a handful of unlabelled inputs become a small network, in one call.

The package is itself the call: ``torchlift.compress(model, calibration, bits=4)``.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlift.compress.call import compress as compress
    from torchlift.compress.result import Compressed as Compressed

HOMES = {"Compressed": "result", "compress": "call"}

__all__ = ["Compressed", "compress"]


class Callable(types.ModuleType):
    """A package that can be called, so that ``tl.compress`` is the function whatever was imported first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """:func:`torchlift.compress.call.compress`."""
        from torchlift.compress.call import compress

        return compress(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        import importlib

        if name == "__signature__":
            import inspect

            from torchlift.compress.call import compress

            return inspect.signature(compress)
        if name not in HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"torchlift.compress.{HOMES[name]}"), name)


sys.modules[__name__].__class__ = Callable
