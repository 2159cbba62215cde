"""The page about SKIP LOCKED and its tests name each other: no statement without a test, no test that nobody finds."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.skip_locked.matrix import PAGE
from house.sources import ROOT

TEXT = PAGE.read_text(encoding="utf-8")
NAMED = {name for names in re.findall(r"<!-- test: (.*?) -->", TEXT) for name in names.split(", ")}

#: Advice, not statements about a server, as the page's items begin.
ADVICE = ("What helps is to hold locks for short", "So on PostgreSQL always", "Not to claim any row")


def test_every_name_is_a_test() -> None:
    """What the page names is there, and what is here the page names."""
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    files.append(ROOT / "tests" / "anomaly" / "test_replicas.py")
    here = "".join(path.read_text(encoding="utf-8") for path in files)
    assert set(re.findall(r"^def (test_\w+)\(", here, re.MULTILINE)) == NAMED


def test_every_item_names_its_test() -> None:
    """Each item of a list, but for advice."""
    items = [item for item in re.findall(r"^- .*(?:\n  .*)*", TEXT, re.MULTILINE) if not item[2:].startswith(ADVICE)]
    assert len(items) > 20
    assert [item for item in items if "<!-- test: " not in item] == []
