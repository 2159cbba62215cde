"""Whether a text gets to the server whole over a connection that the user brought, which may have a character set of its own.

Where it has not got all characters, MySQL and MariaDB store question marks in their place; only in strict mode it is an
error, on some drivers one of Python's. So the connection is asked, and the text refused before it is sent.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TypeVar

from dibs.errors import lacks_character
from dibs.ops import Op, Request, fetch

T = TypeVar("T")

#: A text is taken for what the first of these says, and then turned into the second.
CHARACTER_SETS = "SELECT @@character_set_client, @@character_set_connection"

#: The character sets that hold every text; what is sent as `binary` gets there as it is.
_HOLD_ALL = ("utf8mb4", "binary", "gb18030")

#: What Python calls those that it knows by another name.
_CODECS = {
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
}


def carried(op: Op[T]) -> Op[T]:
    """Return the op as one that sends no text which the connection's character set has not got.

    Raises UnsupportedConnection before such a text is sent. That costs a question, where there is any text beyond ASCII.
    """
    answer, known = None, None
    try:
        while True:
            request = op.send(answer)
            texts = [text for text in _texts(request) if not text.isascii()]
            if texts and known is None:
                (known,) = yield from fetch(CHARACTER_SETS)
            for name in known or ():
                for text in texts:
                    _check(text, str(name))
            answer = yield request
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        op.close()


def _texts(request: Request) -> Iterable[str]:
    return (value for value in request.values.values() if isinstance(value, str))


def _check(text: str, name: str) -> None:
    if name in _HOLD_ALL:
        return
    missing: str | None
    if name in ("utf8mb3", "utf8"):
        missing = next((character for character in text if character > "\uffff"), None)
    else:
        missing = _missing(text, _CODECS.get(name, name))
    if missing is not None:
        raise lacks_character(name, missing, "connect with charset=utf8mb4")


def _missing(text: str, codec: str) -> str | None:
    """Return the first character that a codec has not got; without such a codec the first that is not ASCII."""
    try:
        codecs.lookup(codec)
    except LookupError:
        codec = "ascii"
    try:
        text.encode(codec)
    except UnicodeEncodeError as error:
        return text[error.start]
    return None
