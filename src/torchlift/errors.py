"""What can go wrong: one clear line each, naming the fix; and whose fault it is.

A fault of the *candidate* (a recipe that diverges, does not accept the model, or raises anything) is a result
of a search. A fault of the *machine* or of what candidates share (the disk, memory, a lost worker, a lock,
damaged checkpoints or data) is never one: it ends the search, and ``resume=True`` goes on once it is mended.
"""


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


class LostWorkerError(TorchliftError):
    """A job whose worker is gone, however often it was submitted again."""


class DivergedError(TorchliftError):
    """The objective left the finite numbers."""


class BudgetError(TorchliftError):
    """Work that the budget does not pay for."""


MACHINE = (OSError, MemoryError, CheckpointError, DataError, LostWorkerError)
"""Errors that tell of the machine, or of what all candidates share."""
MEMORY = ("OutOfMemoryError", "DefaultCPUAllocator")
"""What torch calls a lack of memory: a class on accelerators, the first word of a message on the CPU."""


def machine_fault(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, is not the fault of the candidate at work."""
    lack = type(error).__name__ in MEMORY or any(f"{word}:" in str(error) for word in MEMORY)
    if lack or isinstance(error, MACHINE):
        return True
    return error.__cause__ is not None and machine_fault(error.__cause__)


LONGEST = 400
"""Characters of a message about a file."""


def printable(message: str) -> str:
    """A message that may quote a file: no line breaks, no control characters, not long."""
    line = "".join(c if c.isprintable() else "?" for c in message)
    return line if len(line) <= LONGEST else line[:LONGEST] + " …"


def one_line(error: BaseException) -> str:
    """An error in one line; the class is named where the message is not ours."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if first and isinstance(error, TorchliftError) else f"{type(error).__name__}: {first}"
