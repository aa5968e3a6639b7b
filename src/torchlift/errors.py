"""What can go wrong because of what was given: one clear line each, naming the fix."""


class TorchliftError(ValueError):
    """Base of all errors a user can mend. The command line prints them as one line."""


class SelectionError(TorchliftError):
    """A glob that matches nothing, or names nobody knows."""


class OrderError(TorchliftError):
    """Lifts applied or projected in an order that has no meaning."""


class NeedsFitError(TorchliftError):
    """A projection that learns was called without something to learn with."""


class DataError(TorchliftError):
    """Data no problem can be fitted to."""


class CheckpointError(TorchliftError):
    """A checkpoint that is damaged, or belongs to another run."""


class InUseError(CheckpointError):
    """A folder in which another process is at work."""


class DivergedError(TorchliftError):
    """The objective left the finite numbers."""


class BudgetError(TorchliftError):
    """Work that the budget does not pay for."""
