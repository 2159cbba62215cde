"""One line on stderr about what takes a while. Results go to stdout, and not through here."""

from __future__ import annotations

import sys


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
