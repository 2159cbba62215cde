"""A real Django project, run as its people run it: through manage.py, in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from databases import NAMES, new_database
from dibs import Dibs
from dibs.states import State

pytest.importorskip("django")

PROJECT = Path(__file__).parent / "project"
PROMISES = sorted(path.stem for path in (PROJECT / "promises").glob("[a-z]*.py"))
HAS_STANDARD = find_spec("django.tasks") is not None or find_spec("django_tasks") is not None


class Site:
    """The project on a database of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {
            **os.environ,
            "DIBS_DJANGO_URL": url,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONWARNINGS": "default",
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def manage(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """Run a command to its end and return what it printed."""
        process = self.start(*arguments, **environment)
        try:
            out, err = process.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        assert process.returncode == code, (
            f"manage.py {' '.join(arguments)}: {process.returncode}\n{out}\n{err[-6000:]}"
        )
        return out if code == 0 else err


@pytest.fixture(params=NAMES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The project, on an empty database."""
    if request.param == "sqlite":
        yield Site(f"sqlite:///{tmp_path / 'shop.db'}")
        return
    with new_database(request.param) as url:
        yield Site(url)


@pytest.mark.skipif(not HAS_STANDARD, reason="neither Django 6 nor django-tasks is installed")
class TestPromises:
    @pytest.mark.parametrize("module", PROMISES)
    def test_the_projects_own_tests(self, site: Site, module: str) -> None:
        """What the project's own tests say of enqueueing, of working, of the admin and of the framework's tasks."""
        site.manage("test", "--noinput", f"promises.{module}")

    def test_without_time_zones(self, site: Site) -> None:
        """Under USE_TZ = False times are the project's, and right."""
        site.manage("test", "--noinput", "promises.enqueueing", "promises.standard", DIBS_DJANGO_NAIVE="1")

    def test_with_a_prefix(self, site: Site) -> None:
        """Tables of other names are what the models read."""
        settings = json.dumps({"PREFIX": "shop_"})
        assert "No changes" in site.manage("makemigrations", "--check", DIBS_DJANGO_SETTINGS=settings)
        site.manage("test", "--noinput", "promises.enqueueing.InTests", DIBS_DJANGO_SETTINGS=settings)

    def test_in_memory(self, tmp_path: Path) -> None:
        """Tests work on the database in memory that Django makes of a file; a worker there says what is wrong."""
        site = Site(f"sqlite:///{tmp_path / 'shop.db'}")
        site.manage(
            "test", "--noinput", "promises.enqueueing.InTests", "promises.administration", DIBS_DJANGO_IN_MEMORY="1"
        )

    def test_in_parallel(self, site: Site) -> None:
        """Each process of a parallel test run has its own database, and dibs goes there too."""
        if site.url.startswith("m") and shutil.which("mysqldump") is None:
            pytest.skip("Django copies this kind of database with mysqldump")
        site.manage("test", "--noinput", "--parallel", "2", "promises.enqueueing", "promises.administration")

    def test_the_whole_way(self, site: Site) -> None:
        """migrate, enqueue, worker, status: as one does it, and again."""
        assert "dibs.0001_initial... OK" in site.manage("migrate", "--no-color")
        assert "No changes detected" in site.manage("makemigrations", "--check", "--dry-run")
        assert "enqueued 1" in site.manage("dibs", "enqueue", "shop.tasks.send_receipt", "--args", '{"order_id": 7}')
        site.manage("dibs", "worker", "--burst", "-q", "other")
        app = Dibs(site.url)
        assert app.job(1).status is State.READY
        site.manage("dibs", "worker", "--burst", "-q", "mail", "--settings=site_settings")
        assert (app.job(1).status, app.job(1).result) == (State.DONE, "sent 7")
        site.manage("dibs", "enqueue", "shop.tasks.count_in_process")
        site.manage("dibs", "worker", "--burst", "-q", "default", "--settings=site_settings")
        assert (app.job(2).status, app.job(2).result) == (State.DONE, 0), app.job(2).error
        app.close()
        assert json.loads(site.manage("dibs", "jobs", "--json"))[-1]["id"] == 1
        assert "mail" in site.manage("dibs", "status")
        assert "all 1 jobs" in site.manage("dibs", "check")
        assert "up to date" in site.manage("dibs", "migrate")
        assert "manage.py dibs [OPTIONS]" in site.manage("dibs", "--help")

    def test_several_processes(self, site: Site) -> None:
        """--processes starts this project's workers, and SIGTERM ends them."""
        site.manage("migrate")
        site.manage("dibs", "enqueue", "shop.tasks.send_receipt", "--args", "[8]")
        supervisor = site.start("dibs", "worker", "--processes", "2")
        app = Dibs(site.url)
        end = time.monotonic() + 60
        while app.job(1).status is not State.DONE and time.monotonic() < end:
            time.sleep(0.1)
        supervisor.send_signal(signal.SIGTERM)
        _, err = supervisor.communicate(timeout=60)
        assert (app.job(1).status, supervisor.returncode) == (State.DONE, 0), err
        app.close()

    def test_wrong_usage(self, site: Site) -> None:
        """A wrong command ends with 2 and a sentence, a missing schema with 4."""
        assert "did you mean" in site.manage("dibs", "wurker", code=2)
        assert "no task" in site.manage("dibs", "enqueue", "shop.tasks.unknown", code=2)

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"DATABASES": "default"}, "did you mean 'DATABASE'?"),
            ({"DATABASE": "nowhere"}, "has no such alias"),
            ({"MIGRATIONS": "other"}, "'django' or 'dibs'"),
            ({"DEFAULTS": {"max_atempts": 1}}, "has no option 'max_atempts'"),
            ({"DEFAULTS": {"max_attempts": 0}}, "max_attempts"),
        ],
    )
    def test_wrong_settings(self, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
        """manage.py check says which setting is wrong, and how."""
        site = Site(f"sqlite:///{tmp_path / 'shop.db'}")
        heard = site.manage("check", code=1, DIBS_DJANGO_SETTINGS=json.dumps(settings))
        assert said in heard

    def test_dibs_own_migrations(self, site: Site) -> None:
        """With MIGRATIONS = "dibs", `migrate` leaves the tables to `dibs migrate`."""
        settings = json.dumps({"MIGRATIONS": "dibs"})
        site.manage("migrate", DIBS_DJANGO_SETTINGS=settings)
        assert "applied 0001 initial" in site.manage("dibs", "migrate", DIBS_DJANGO_SETTINGS=settings)
        site.manage("migrate", "dibs", "zero", code=1)

    def test_tables_that_are_there(self, site: Site) -> None:
        """`migrate` takes tables that `dibs migrate` made as they are."""
        site.manage("dibs", "migrate")
        site.manage("migrate")
        assert "up to date" in site.manage("dibs", "migrate")


def test_every_migration_of_dibs_is_one_of_djangos() -> None:
    """Whoever adds a migration to dibs adds one to its Django app."""
    from dibs import migrations

    folder = Path(migrations.__file__).parents[1] / "contrib" / "django" / "migrations"
    applied = [int(path.name[:4]) for path in sorted(folder.glob("[0-9]*.py")) if "ApplyDibs(" in path.read_text()]
    assert applied == list(range(1, migrations.SCHEMA + 1))
