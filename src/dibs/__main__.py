"""The entry point of the `dibs` command: heed signals from the first moment, then run the command.

A worker that is told to stop while it starts has claimed nothing, and ends well. So nothing that takes time is
imported before its handlers are set: until then, a signal ends the process the hard way.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps, without the millisecond for its enums
import os
import sys


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    if _command(sys.argv[1:]) == "worker":
        for number in (_signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, _leave)
    try:
        from dibs.cli.run import run
    except KeyboardInterrupt:
        os.write(2, b"dibs: interrupted\n")
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))


def _leave(number: int, frame: object) -> None:
    """End at once: whenever this is called, no job is claimed, and there is nothing to take apart."""
    os._exit(0)


def _command(arguments: list[str]) -> str | None:
    """Return the command's name; before it there may be options, of which only --url and -A have a value."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("--url", "-A", "--app"):
            skip = True
        elif not argument.startswith("-"):
            return argument
    return None


if __name__ == "__main__":
    main()
