"""`dibs_jobs` with pytest-django: a real project's tests, run as its people run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from databases import NAMES, new_database

PROJECT = Path(__file__).parents[1] / "contrib" / "django" / "project"
HAS_STANDARD = find_spec("django.tasks") is not None or find_spec("django_tasks") is not None

pytestmark = pytest.mark.skipif(
    not HAS_STANDARD or find_spec("pytest_django") is None, reason="pytest-django or a django.tasks is not installed"
)


@pytest.fixture(params=[*NAMES, "memory"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param not in ("sqlite", "memory"):
        with new_database(request.param) as url:
            yield {"DIBS_DJANGO_URL": url}
        return
    in_memory = "1" if request.param == "memory" else ""
    yield {"DIBS_DJANGO_URL": f"sqlite:///{tmp_path / 'shop.db'}", "DIBS_DJANGO_IN_MEMORY": in_memory}


def test_a_projects_tests(environment: dict[str, str], tmp_path: Path) -> None:
    """What the project's tests say of the fixture, on each database."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = site_settings\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(tmp_path / "pytest.ini"),
         "--rootdir", str(PROJECT), "--confcutdir", str(PROJECT), "pytests"],
        cwd=PROJECT,
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join([str(PROJECT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-3000:]
    assert "8 passed" in ran.stdout
