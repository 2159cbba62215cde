"""How a database spells what the shared statements need, done once when a dialect is made."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

from dibs.ops import Value

TABLES = (
    "dibs_jobs",
    "dibs_keys",
    "dibs_loose_keys",
    "dibs_duplicates",
    "dibs_queues",
    "dibs_chores",
    "dibs_workers",
    "dibs_meta",
)

#: What privileges can be on beside the tables: the schema, and the sequence that the ids of keyed jobs come from.
SCHEMA = "schema"
JOB_IDS = "dibs_jobs_id_seq"

_TABLE = re.compile(rf"(?<!')\b({'|'.join(TABLES)})\b")


class Spelling(ABC):
    """Makes every statement constant of a class ready to be sent: its words spelt, its tables qualified."""

    #: `now`: the statement's moment · `in_ids`, `in_tasks`: what follows a column that is in the list `:ids`,
    #: `:tasks` · `soon`: the moment `:delay` seconds from now · `for_update`, `skip_locked`, `nowait`: row locks ·
    #: `insert_new`, `or_nothing`: around an insert that does nothing where the key is there already · `as_text`: after a
    #: column that is JSON · `sooner`: `run_at`, `:seconds` earlier · `error_has`: does the text of the last error contain
    #: `:error`, letter by letter? · `since`: the moment `:since`.
    spelling: ClassVar[dict[str, str]]

    #: Statements that have this session wait for a table's lock for a moment only, until the transaction or the session ends.
    hurry: ClassVar[tuple[str, ...]] = ()

    def __init__(self, schema: str, prefix: str = "") -> None:
        self.schema = schema
        self.prefix = prefix
        spell_constants(self, self.spell)

    def spell(self, text: str) -> str:
        """Return a statement in this database's spelling, its tables qualified with the schema."""
        for word, spelt in self.spelling.items():
            text = text.replace("{" + word + "}", spelt)
        return self.qualify(text)

    def qualify(self, text: str) -> str:
        """Return a text with the tables' names qualified: no search path is relied on."""
        return _TABLE.sub(lambda match: f"{self.quote(self.schema)}.{self.prefix}{match[0]}", text)

    @abstractmethod
    def quote(self, name: str) -> str:
        """Return a name quoted as an identifier."""

    @abstractmethod
    def ids(self, ids: Iterable[int]) -> Value:
        """Return a list of ids (never empty) as the one value that `{in_ids}` takes."""

    @abstractmethod
    def names(self, names: Iterable[str]) -> Value:
        """Return a list of names (never empty) as the one value that `{in_tasks}` takes."""

    @abstractmethod
    def moment(self, value: Any) -> datetime:
        """Return a time as this database gives it as an aware UTC datetime."""

    @abstractmethod
    def written(self, moment: datetime) -> Value:
        """Return a time as the value that a column of times is compared with; the reverse of `moment`."""

    def moment_or_none(self, value: Any) -> datetime | None:
        return None if value is None else self.moment(value)


def spell_constants(owner: object, spell: Callable[[str], str]) -> None:
    """Give an object the statement constants of its class, each as `spell` returns it."""
    for name in dir(type(owner)):
        text = getattr(type(owner), name)
        if name.isupper() and isinstance(text, str):
            setattr(owner, name, spell(text))


def utc(value: datetime) -> datetime:
    """Return a datetime as aware UTC; a naive one is taken to be UTC already."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
