"""Secret arguments: which they are, how they are masked where a job is shown, and how they are kept out of texts.

The worker needs the value, so it is stored as it is, in the job's payload; what is protected is every output. The
names of a job's secret arguments are stored beside its `meta`, so that whoever shows the row can mask them, also
where the task's code is not at hand.
"""

from __future__ import annotations

import json
import logging
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

T = TypeVar("T")

logger = logging.getLogger("dibs")

#: What stands in the place of a secret.
MASK = "•••"

#: Under which name `meta` has the names of a job's secret arguments.
NAMES = "dibs.secret"

#: Stands among those names where the result is secret. No argument can be called so.
RESULT = "return"

#: Where else on a job's row the value of an argument may have got to.
ELSEWHERE = ("task_key", "result", "error", "errors", "cancel_reason", "meta", "progress", "checkpoint")

#: Shorter values (characters) are not looked for in texts: they would be found in half of all words.
SHORTEST = 3

#: From this length on a value is also found inside of a word.
LONG_ENOUGH = 6


class _Mark:
    def __repr__(self) -> str:
        return "secret"


#: `password: Secret[str]`: an argument that is masked wherever its job is shown. A type checker sees the `str`.
Secret = Annotated[T, _Mark()]


def holds_secret(annotation: Any, _seen: frozenset[int] = frozenset()) -> bool:
    """Is this annotation a `Secret`, or is there one inside of it, such as a field of a dataclass?

    >>> holds_secret(dict[str, Secret[int]] | None), holds_secret(dict[str, int])
    (True, False)
    """
    if id(annotation) in _seen:
        return False
    seen = _seen | {id(annotation)}
    if any(isinstance(each, _Mark) for each in getattr(annotation, "__metadata__", ())):
        return True
    inside = [*typing.get_args(annotation), getattr(annotation, "__supertype__", None)]
    inside.append(getattr(annotation, "__value__", None) if not isinstance(annotation, type) else None)
    if isinstance(annotation, type) and getattr(annotation, "__annotations__", None):
        try:
            inside += typing.get_type_hints(annotation, include_extras=True).values()
        except Exception:  # noqa: BLE001 - a class of somebody's that is no record; the codec says if it can't be read
            return False
    return any(holds_secret(each, seen) for each in inside if each is not None)


# -- where a job is shown ----------------------------------------------------------------------------


def stamped(meta: msgspec.Raw | None, names: list[str]) -> msgspec.Raw | None:
    """Return a job's meta with the names of its secret arguments."""
    if not names:
        return meta
    return msgspec.Raw(msgspec.json.encode({**(msgspec.json.decode(meta) if meta else {}), NAMES: names}))


def unstamped(meta: Any) -> tuple[Any, list[str]]:
    """Return what hooks put into `meta` (None where they put nothing), and the names of the secret arguments."""
    if not isinstance(meta, dict) or NAMES not in meta:
        return meta, []
    rest = {name: value for name, value in meta.items() if name != NAMES}
    names = meta[NAMES] if isinstance(meta[NAMES], list) else []
    return rest or None, [name for name in names if isinstance(name, str)]


def masked(payload: Any, names: Iterable[str]) -> Any:
    """Return arguments with the secret ones masked.

    >>> masked({"user": "zoe", "password": "hunter2"}, ["password"])
    {'user': 'zoe', 'password': '•••'}
    """
    if not names or not isinstance(payload, dict):
        return payload
    return {**payload, **{name: MASK for name in names if payload.get(name) is not None}}


def concealed(job: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what may be shown of a job, given the names of its secrets: the arguments masked, their values taken out
    of everything else on its row, and the result masked where it is secret itself.

    >>> shown = concealed({"payload": {"pin": "7412"}, "task_key": "zoe-7412", "result": 7412}, ["pin"])
    >>> shown["task_key"], shown["result"]
    ('zoe-•••', '•••')
    """
    shown = dict(job)
    if not names:
        return shown
    payload = job["payload"] if isinstance(job["payload"], dict) else {}
    forms = _forms_in(payload, lambda name: name in names)
    for field in ELSEWHERE if forms else ():
        if field in shown:
            shown[field] = _hidden(shown[field], forms)
    if RESULT in names and shown.get("result") is not None:
        shown["result"] = MASK
    shown["payload"] = masked(job["payload"], names)
    return shown


def _hidden(value: Any, forms: Sequence[str]) -> Any:
    """Return a JSON value without the forms of secret values."""
    if isinstance(value, str):
        return _cut_out(value, forms)
    if isinstance(value, dict):
        return {_cut_out(str(name), forms): _hidden(each, forms) for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, forms) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if _cut_out(str(value), forms) == str(value) else MASK
    return value


# -- in texts ----------------------------------------------------------------------------------------


def without(text: str, payload: str | bytes, is_secret: Callable[[str], bool]) -> str:
    """Return a text in which the values of a job's secret arguments are masked, in the forms they usually take.

    What the code that raised an error made of a value (cut it, turned it round) is not found: that is for
    `Dibs(scrub=…)`.
    """
    try:
        arguments = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return text
    return _cut_out(text, _forms_in(arguments, is_secret))


def _forms_in(arguments: Mapping[str, Any], is_secret: Callable[[str], bool]) -> list[str]:
    """Return how the values of the secret arguments may stand in a text, the longest first: a secret that is a part
    of another must not break that up."""
    leaves = {leaf for name, value in arguments.items() if is_secret(name) for leaf in _leaves(value)}
    return sorted({form for leaf in leaves for form in _forms(leaf)}, key=len, reverse=True)


def _cut_out(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        if len(form) >= LONG_ENOUGH:
            text = text.replace(form, MASK)
        elif len(form) >= SHORTEST and form in text:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may stand in a text: as it is, as Python, as JSON and as a URL would write it."""
    yield value
    for quoted in (repr(value), ascii(value), json.dumps(value), json.dumps(value, ensure_ascii=False)):
        yield quoted[1:-1]
    yield quote(value, safe="")
    yield quote_plus(value)
    lines = value.splitlines()
    if len(lines) > 1:  # such as a key in PEM: an error may quote a line of it
        yield from (line.strip() for line in lines if len(line.strip()) > LONG_ENOUGH)


def scrubbed(text: str, scrub: Callable[[str], str] | None) -> str:
    """Return a text as the user's `scrub` leaves it; nothing of it where that fails."""
    if scrub is None:
        return text
    try:
        cleaned = scrub(text)
        if isinstance(cleaned, str):
            return cleaned
        problem = f"it returned {type(cleaned).__name__}"
    except BaseException as error:  # noqa: BLE001 - the user's code; its own message may quote what it should hide
        problem = f"it raised {type(error).__name__}"
    logger.error("Dibs(scrub=…) could not clean an error's text, so the text is left out: %s", problem)
    return "(left out: Dibs(scrub=…) could not clean it)"
