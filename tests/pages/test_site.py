"""The site is built from what is there: the whole public face, and every page, also one that its index does not name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import dibs
from pages.reading import ROOT


def test_the_api_page_has_all_of_the_public_face() -> None:
    """Each name that can be imported from dibs."""
    page = (ROOT / "docs" / "api.md").read_text()
    assert set(re.findall(r"(?:auto|py:)\w+:: dibs\.(\w+)(?:\(\))?$", page, re.MULTILINE)) >= set(dibs.__all__)


def test_the_site_takes_a_new_page(tmp_path: Path) -> None:
    """A page is found in the site's index without being named there; a link that leads nowhere fails the build."""
    pages = tmp_path / "docs"
    pages.mkdir()
    shutil.copy(ROOT / "README.md", tmp_path)
    for name in ("conf.py", "index.md", "tutorial.md", "from-rq.md", "from-celery.md"):
        shutil.copy(ROOT / "docs" / name, pages)
    (pages / "brand-new.md").write_text("# Brand new\n\nSee [the tutorial](tutorial.md).\n")
    for name in (
        "idempotent",
        "cli",
        "long-tasks",
        "defaults",
        "django",
        "databases",
        "hooks",
        "api",
        "outages",
        "grants",
    ):
        (pages / f"{name}.md").write_text(f"# {name}\n")
    assert build(pages, tmp_path / "site") == ""
    assert 'href="brand-new.html"' in (tmp_path / "site" / "index.html").read_text()
    (pages / "brand-new.md").write_text("# Brand new\n\nSee [nothing](nothing.md).\n")
    assert "nothing.md" in build(pages, tmp_path / "site")


def build(pages: Path, into: Path) -> str:
    """Build a site; return the warnings."""
    command = [sys.executable, "-m", "sphinx", "--nitpicky", "--quiet", str(pages), str(into)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stderr
