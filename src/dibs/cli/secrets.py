"""Keeps passwords out of what is printed, whoever wrote the text: a driver, the user's code, a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

# As far as the last @: whoever writes a URL by hand does not always escape the one in the password.
_IN_URL = re.compile(r"(://[^:@/\n]*:)\S*@")
_NAMED = re.compile(r"\b((?:ssl)?passw(?:or)?d=)[^\s&'\"]+", re.IGNORECASE)

#: Shorter ones are too likely to be a part of some word; in a URL they are found all the same.
_SHORTEST = 4

_hidden: set[str] = set()


def hide(url: str | None) -> None:
    """Never print the password of this URL."""
    address = (url or "").partition("://")[2]
    _, _, password = address.rpartition("@")[0].partition(":")
    others = address.replace(f":{password}@", "@")
    _hidden.update(text for text in (password, unquote(password)) if len(text) >= _SHORTEST and text not in others)


def scrub(text: str) -> str:
    """Return a text without the passwords in it."""
    text = _NAMED.sub(r"\1***", _IN_URL.sub(r"\1***@", text))
    for password in _hidden:
        text = text.replace(password, "***")
    return text


def has_password(text: str) -> bool:
    """Is this, or does it hold, a URL with a password?"""
    return _IN_URL.search(text) is not None


def hide_those_in(arguments: Iterable[str]) -> None:
    """Never print the passwords of the URLs in the environment and on the command line, wherever they stand there."""
    for argument in arguments:
        if "://" in argument:
            hide(argument)
    for name, value in os.environ.items():
        if name.endswith("DATABASE_URL"):
            hide(value)
