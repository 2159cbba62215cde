"""JSON as it stands on a row. Whoever may write to the table may have written it, so it is read without trust: what is no
JSON is the text that it is, and what has another shape than dibs gives it is left out.
"""

from __future__ import annotations

from typing import Any

import msgspec


def value_of(text: str | bytes | None) -> Any:
    """Return the value of a column that holds JSON.

    >>> value_of('{"a": 1}'), value_of("{a: 1}"), value_of(None)
    ({'a': 1}, '{a: 1}', None)
    """
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text if isinstance(text, str) else bytes(text).decode(errors="replace")


def errors_of(text: str | bytes | None) -> list[dict[str, Any]]:
    """Return a job's last errors.

    >>> errors_of('[{"attempt": 1}, 7]'), errors_of("7")
    ([{'attempt': 1}], [])
    """
    kept = value_of(text)
    return [each for each in kept if isinstance(each, dict)] if isinstance(kept, list) else []
