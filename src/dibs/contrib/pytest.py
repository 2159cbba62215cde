"""The pytest plugin: the fixture `dibs_jobs`, with the jobs that the test has enqueued. See docs/testing.md.

Loaded in every test suite of an environment that has dibs, so it imports nothing of it before it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from dibs import written

if TYPE_CHECKING:
    from dibs.app import Dibs
    from dibs.testing import Jobs

#: What this test has enqueued so far, its fixtures too: pairs of the app and the job's id.
_recorded: list[tuple[Any, int]] = []


def _record(app: Any, job_id: int, task: str) -> None:
    _recorded.append((app, job_id))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("dibs_app", "the app whose jobs the fixture dibs_jobs is about: module:attribute")


def pytest_configure(config: pytest.Config) -> None:
    if _record not in written.recorders:
        written.recorders.append(_record)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _recorded.clear()


@pytest.fixture
def dibs_app(pytestconfig: pytest.Config) -> Dibs:
    """The app of `dibs_jobs`: that of a Django project, else the one that `dibs_app = module:attribute` in pytest's
    configuration names, or DIBS_APP. Override it to return yours."""
    place = pytestconfig.getini("dibs_app") or os.environ.get("DIBS_APP")
    if place:
        from dibs.cli.apps import load

        return load(place, None)
    django = sys.modules.get("django.conf")
    if django is not None and django.settings.configured and "dibs.contrib.django" in django.settings.INSTALLED_APPS:
        from dibs.contrib.django.project import project_app

        return project_app()
    raise pytest.UsageError(
        "dibs_jobs does not know your app: write a fixture dibs_app that returns it, or "
        "dibs_app = myapp.jobs:app in pytest's configuration"
    )


@pytest.fixture
def dibs_connection() -> Any:
    """The connection or session of the test's transaction. Override it, unless the app knows it: `Dibs(connection=…)`,
    Django."""
    return None


@pytest.fixture
def dibs_jobs(dibs_app: Dibs, dibs_connection: Any) -> Iterator[Jobs]:
    """The jobs that this test has enqueued: look at them, run them, move their clock."""
    from dibs.testing import Jobs

    already = [job_id for app, job_id in _recorded if app is dibs_app]
    with Jobs(dibs_app, connection=dibs_connection, already=already) as jobs:
        yield jobs
