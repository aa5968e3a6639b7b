"""From plain data (history rows, summaries, results) to pages; missing keys are simply left out."""

from torchlift.report.story.comparison import comparison_page
from torchlift.report.story.inversion import inversion_page
from torchlift.report.story.reproduction import reproduction_page
from torchlift.report.story.run import run_page

__all__ = ["comparison_page", "inversion_page", "reproduction_page", "run_page"]
