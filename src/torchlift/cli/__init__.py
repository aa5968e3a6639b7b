"""The command line: thin shells around the library. Help and errors of form never import torch."""

from torchlift.cli.program import main

__all__ = ["main"]
