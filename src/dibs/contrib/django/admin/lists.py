"""What keeps the list of jobs quick however many there are: nothing here reads the whole table."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.core.paginator import Paginator

from dibs.contrib.django import app

#: Jobs are counted up to here; a list that is longer is too long to be paged through anyway.
COUNTED = 10_000


class NearPaginator(Paginator):
    """Counts to COUNTED at most."""

    @property
    def count(self) -> int:
        if not hasattr(self, "_count"):
            self._count: int = self.object_list[:COUNTED].count()
        return self._count


class KnownFilter(SimpleListFilter):
    """Offers names that the app knows, and the one that is asked for, instead of all in the table."""

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        app.load()
        names = self.known()
        if (asked := self.used_parameters.get(self.parameter_name)) is not None:
            names.add(asked)
        return [(name, name) for name in sorted(names)]

    def known(self) -> set[str]:
        raise NotImplementedError

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset if self.value() is None else queryset.filter(**{str(self.parameter_name): self.value()})


class QueueFilter(KnownFilter):
    title = "queue"
    parameter_name = "queue"

    def known(self) -> set[str]:
        lanes = app.store.run(lambda: app.dialect.lanes(None))
        return {task.options.queue for task in app.tasks.values()} | {lane.queue for lane in lanes}


class TaskFilter(KnownFilter):
    title = "task"
    parameter_name = "task"

    def known(self) -> set[str]:
        return {name for task in app.tasks.values() for name in (task.name, *task.aliases)}
