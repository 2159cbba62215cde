"""`python scripts/servers`: see cli.py. This file only makes the package importable by its name."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from servers.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
