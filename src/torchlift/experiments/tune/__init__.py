"""Search for the settings of a recipe and its optimizer: Optuna on a shared journal, or two line searches."""

from torchlift.experiments.tune.result import Trial, Tuned
from torchlift.experiments.tune.search import search
from torchlift.experiments.tune.space import Choice, Range, Space, parse_space
from torchlift.experiments.tune.story import tuning_page

__all__ = ["Choice", "Range", "Space", "Trial", "Tuned", "parse_space", "search", "tuning_page"]
