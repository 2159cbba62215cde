"""What a value may not be, so that it is stored and read back the same on every database.

Refused here, at the call, because the databases differ: one refuses a NUL, one keeps it, one cuts the text
off there when it is read. No I/O, no settings.
"""

from __future__ import annotations

from dibs.errors import InvalidArgument

#: How deep an argument may be nested. A payload is one deeper, and the JSON functions of one database, with
#: which a person may want to look into it, give up at more than 100.
DEEPEST = 99

#: Python's own limit for reading an integer, `sys.int_info.default_max_str_digits`. It can be raised, but the
#: worker is another process.
MOST_DIGITS = 4300


def problem_with_text(text: str) -> str | None:
    r"""Return why `text` cannot be stored, or None.

    >>> problem_with_text("a\0b")
    'holds a NUL character, which not every database can store'
    """
    if "\0" in text:
        return "holds a NUL character, which not every database can store"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character: it cannot be written as UTF-8"
    return None


def check_text(text: str, path: str) -> None:
    """Raise `InvalidArgument` if `text` (a name, a key, a reason) cannot be stored."""
    if problem := problem_with_text(text):
        raise InvalidArgument(path, problem)
