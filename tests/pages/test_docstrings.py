"""Examples in docstrings are run, as those of the pages are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from house.sources import PACKAGE, python_files

MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in python_files("src")
    if ">>> " in path.read_text(encoding="utf-8")
]

#: What Django's part of dibs needs to be imported.
PROGRAM = """
import doctest, importlib, sys

name = sys.argv[1]
if "django" in name:
    import django
    from django.conf import settings

    settings.configure(
        INSTALLED_APPS=["dibs.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()
result = doctest.testmod(importlib.import_module(name))
assert result.attempted, "no examples"
sys.exit(result.failed)
"""


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    """Each gives what it says, in a process in which only its module was imported."""
    command = [sys.executable, "-c", PROGRAM, module]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
