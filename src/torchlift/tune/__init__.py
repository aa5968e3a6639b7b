"""Search for the settings of a recipe and its optimiser: Optuna on a shared journal, or two line searches."""

from torchlift.tune.result import Trial, Tuned
from torchlift.tune.searching import search
from torchlift.tune.space import Choice, Range, Space, parse_space
from torchlift.tune.story import tuning_page

__all__ = ["Choice", "Range", "Space", "Trial", "Tuned", "parse_space", "search", "tuning_page"]
