"""Optuna, imported when it is wanted."""

from typing import Any

from torchlift.errors import TorchliftError


def optuna() -> Any:
    """The package, quiet, or a line that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise TorchliftError("tuning needs Optuna: pip install 'torchlift[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
