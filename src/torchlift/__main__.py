"""``python -m torchlift``: the command line."""

import sys

from torchlift.cli import main

if __name__ == "__main__":
    sys.exit(main())
