"""`python scripts/faults`: see cli.py. This file only makes the packages importable by their names."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from faults.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
