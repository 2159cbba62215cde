"""The plugin is loaded in every test suite: it costs nothing there, and says what it lacks."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path


def run_pytest(folder: Path, test: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:django", "test_it.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_imports_nothing(tmp_path: Path) -> None:
    """A test suite without jobs does not even import the library."""
    assert [point.value for point in entry_points(group="pytest11", name="dibs")] == ["dibs.contrib.pytest"]
    ran = run_pytest(
        tmp_path,
        "import sys\ndef test_it():\n"
        "    assert {name for name in sys.modules if name.partition('.')[0] in ('dibs', 'msgspec', 'click')} == "
        "{'dibs', 'dibs.contrib', 'dibs.contrib.pytest', 'dibs.written'}",
    )
    assert ran.returncode == 0, ran.stdout


def test_it_says_that_it_knows_no_app(tmp_path: Path) -> None:
    """Without an app the test fails with what to write."""
    ran = run_pytest(tmp_path, "def test_it(dibs_jobs): ...")
    assert ran.returncode == 1
    assert "write a fixture dibs_app that returns it" in ran.stdout


def test_the_app_is_named_in_the_configuration(tmp_path: Path) -> None:
    """And what fixtures enqueued before this one are the test's jobs, too; what an earlier test enqueued is not."""
    (tmp_path / "shop.py").write_text(
        f"from dibs import Dibs\napp = Dibs('sqlite:///{tmp_path}/shop.db')\n@app.task\ndef greet(name: str): ...\n"
    )
    test = """
import pytest
from shop import app, greet

@pytest.fixture
def greeted():
    greet.enqueue("first")

@pytest.mark.parametrize("number", range(2))
def test_it(greeted, dibs_jobs, number):
    greet.enqueue("second")
    assert [job.arguments["name"] for job in dibs_jobs.enqueued(greet)] == ["first", "second"]
"""
    ran = run_pytest(tmp_path, test, "dibs_app = shop:app")
    assert "2 passed" in ran.stdout, ran.stdout
