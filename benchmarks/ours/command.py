"""What the commands of the benchmarks share: numbers, servers that are given, the machine, how they are ended."""

from __future__ import annotations

import argparse
import os
import platform
import signal
from collections.abc import Iterable, Sequence
from types import FrameType
from urllib.parse import urlsplit

SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mariadb"}


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def above_zero(text: str) -> float:
    if (number := float(text)) <= 0:
        raise ValueError(text)
    return number


def parser(name: str, description: str, measures: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that takes names of measures, `--url` and `--json`."""
    made = argparse.ArgumentParser(
        prog=f"benchmarks/{name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("measures", nargs="*", metavar="measure", help=f"which (all unless said): {', '.join(measures)}")
    made.add_argument(
        "--url", action="append", default=[], help="use this server instead of a throwaway one of its kind; repeatable"
    )
    made.add_argument("--json", action="store_true", help="all figures, as JSON")
    return made


def parsed(made: argparse.ArgumentParser, arguments: Sequence[str], measures: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit with 2 and a sentence where a name is unknown. `given` has the servers by kind."""
    asked = made.parse_args(arguments)
    refuse_unknown(made, ("measure", asked.measures, measures))
    asked.given = servers_given(made, asked.url)
    asked.measures = asked.measures or list(measures)
    return asked


def servers_given(made: argparse.ArgumentParser, urls: Sequence[str]) -> dict[str, str]:
    """Return the servers that `--url` names, by kind; exit with 2 and a sentence where a kind is unknown."""
    refuse_unknown(made, ("kind of server", [urlsplit(url).scheme for url in urls], list(SCHEMES)))
    return {SCHEMES[urlsplit(url).scheme]: url for url in urls}


def refuse_unknown(made: argparse.ArgumentParser, *names: tuple[str, Iterable[str], Sequence[str]]) -> None:
    """Exit with 2 and a sentence at the first of `(what, given, known)` where a given name is not known."""
    for what, given, known in names:
        if wrong := [name for name in given if name not in known]:
            made.error(f"no such {what}: {', '.join(wrong)} (there are {', '.join(known)})")


def end_like_ctrl_c() -> None:
    """Have SIGTERM do what Ctrl-C does: what was started is ended, what was measured is printed."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)


def machine() -> dict[str, str]:
    """Return where it was measured, and how busy it is: far above its cores, and others were at work."""
    return {
        "Python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(terse=True),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
