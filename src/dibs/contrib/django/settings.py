"""`settings.DIBS`: what a project may set, and what is refused with a sentence.

DIBS = {"DATABASE": "default", "MIGRATIONS": "django", "DEFAULTS": {"max_attempts": 5}}
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings as project
from django.utils.module_loading import import_string

from dibs.app import Dibs
from dibs.errors import ConfigurationError
from dibs.settings import Options

#: Who makes and updates the tables: `manage.py migrate`, or `manage.py dibs migrate` alone.
MIGRATIONS = ("django", "dibs")

#: What `Dibs(…)` takes and a project can't set, because Django knows it.
_DJANGOS = {"self", "url", "password", "connection", "imports"}

#: Every other parameter of `Dibs(…)`, as a setting is written.
PASSED_ON = frozenset(name.upper() for name in inspect.signature(Dibs.__init__).parameters if name not in _DJANGOS)


@dataclass(frozen=True)
class Settings:
    """`settings.DIBS`, checked.

    - `alias` (DATABASE): which of DATABASES the jobs are in.
    - `migrations` (MIGRATIONS): "django" or "dibs".
    - `autodiscover` (AUTODISCOVER): the modules that are looked for in every installed app.
    - `imports` (IMPORTS): further modules with tasks.
    - `defaults` (DEFAULTS): options of every task that does not say otherwise.
    - `passed_on`: what `Dibs(…)` is called with, such as CODEC and SCHEMA. A dotted path becomes what it names.
    """

    alias: str = "default"
    migrations: str = "django"
    autodiscover: tuple[str, ...] = ("tasks",)
    imports: tuple[str, ...] = ()
    defaults: Options = field(default_factory=Options)
    passed_on: Mapping[str, Any] = field(default_factory=dict)


def read() -> Settings:
    """Return the project's settings; raise ConfigurationError that says which of them is wrong."""
    given: Mapping[str, Any] = getattr(project, "DIBS", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"settings.DIBS is a dictionary, not {type(given).__name__}")
    for name in given:
        if name not in (*_READERS, *PASSED_ON):
            near = difflib.get_close_matches(str(name).upper(), [*_READERS, *PASSED_ON], n=1)
            advice = f": did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"settings.DIBS has no {name!r}{advice}")
    ours: dict[str, Any] = dict(reader(given[name]) for name, reader in _READERS.items() if name in given)
    passed_on = {name.lower(): _resolved(name, value) for name, value in given.items() if name in PASSED_ON}
    return Settings(**ours, passed_on=passed_on)


def _alias(value: Any) -> tuple[str, Any]:
    if value not in project.DATABASES:
        raise ConfigurationError(f"settings.DIBS['DATABASE'] is {value!r}, and settings.DATABASES has no such alias")
    return "alias", value


def _migrations(value: Any) -> tuple[str, str]:
    if value not in MIGRATIONS:
        raise ConfigurationError(f"settings.DIBS['MIGRATIONS'] is 'django' or 'dibs', not {value!r}")
    return "migrations", value


def _autodiscover(value: Any) -> tuple[str, tuple[str, ...]]:
    return "autodiscover", () if value in (False, None) else _names("AUTODISCOVER", value)


def _imports(value: Any) -> tuple[str, tuple[str, ...]]:
    return "imports", _names("IMPORTS", value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(each, str) for each in names):
        raise ConfigurationError(f"settings.DIBS[{name!r}] takes names of modules, not {value!r}")
    return names


def _defaults(value: Any) -> tuple[str, Options]:
    try:
        return "defaults", Options().changed(**value)
    except KeyError as error:
        raise ConfigurationError(f"settings.DIBS['DEFAULTS']: a task has no option {error}") from None


_READERS = {
    "DATABASE": _alias,
    "MIGRATIONS": _migrations,
    "AUTODISCOVER": _autodiscover,
    "IMPORTS": _imports,
    "DEFAULTS": _defaults,
}

#: Settings whose values are objects, for which a dotted path may stand.
_OBJECTS = ("CODEC", "SCRUB", "LIFESPAN")


def _resolved(name: str, value: Any) -> Any:
    if name not in _OBJECTS or not isinstance(value, str):
        return value
    try:
        found = import_string(value)
    except ImportError as error:
        raise ConfigurationError(f"settings.DIBS[{name!r}]: {error}") from error
    return found() if name == "CODEC" and isinstance(found, type) else found
