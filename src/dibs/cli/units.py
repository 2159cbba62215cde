"""Times and sizes as people write them: 30m, 2h, 512M. And several names in one variable of the environment."""

from __future__ import annotations

import re

import click

#: Seconds.
TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

#: Bytes. In powers of 1024, as memory is counted, whichever way it is written.
SIZES = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def duration(text: str) -> float:
    """Return a time in seconds. What is too little or too much is for whoever takes it to say.

    >>> duration("30m"), duration("1.5")
    (1800.0, 1.5)
    """
    match = re.fullmatch(r"\s*(-?(?:\d+(?:\.\d+)?|\.\d+))\s*([smhd]?)\s*", text.lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is no time: write seconds, or a number with s, m, h or d, such as 30m")
    return float(match[1]) * TIMES[match[2]]


def size(text: str) -> int:
    """Return a size in bytes.

    >>> size("512M") == size("512MiB") == size("0.5g")
    True
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kmgt])(?:i?b|i)?\s*", text.lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size: write a number with K, M or G, such as 512M")
    return int(float(match[1]) * SIZES[match[2]])


class _Names(click.ParamType):  # type: ignore[type-arg]  # the oldest click that will do has no such argument
    """Names, of which a variable of the environment may have several, with commas between them."""

    name = "name"
    envvar_list_splitter = ","

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).strip()


NAMES = _Names()
