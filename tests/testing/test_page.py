"""The page on testing shows what works: its snippets are test files, which pytest runs with the plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


PARTS = dict(
    zip(["the fixture", "Django", "the rest"], re.split(r"^## (?:Django|`Dibs\(inline)", PAGE, flags=re.M), strict=True)
)


@pytest.mark.parametrize("part", PARTS)
def test_the_page(tmp_path: Path, part: str) -> None:
    """Every test on the page passes, with pytest-django beside it."""
    snippets = re.findall(r"```python\n(.*?)```", PARTS[part], re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n\n".join(snippets))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DIBS", "DJANGO"))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    tests = sum(snippet.count("def test_") for snippet in snippets)
    assert f"{tests} passed" in ran.stdout, ran.stdout + ran.stderr
