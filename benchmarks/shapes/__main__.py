"""`python benchmarks/shapes`: see cli.py. This file only makes the packages importable by their names."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)
sys.path.insert(1, str(HERE.parents[1] / "scripts"))

from shapes.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
