"""The table of scenarios: each test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent

#: `file`, `file::test`, or `::test` of the file that was named last.
NAMED = re.compile(r"`(?:([\w/]*test_\w+\.py)|(?=::))(?:::(test_\w+))?`")


def test_each_test_that_is_named_is_there() -> None:
    """Here, or in a folder beside this one."""
    missing = []
    for table in HERE.glob("README*.md"):
        path = table
        for file, test in NAMED.findall(table.read_text(encoding="utf-8")):
            if file:
                path = (HERE.parent if "/" in file else HERE) / file
            if not path.exists() or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
                missing.append(f"{table.name}: {file}::{test}")
    assert missing == []


def test_each_scenario_stands_once() -> None:
    """Forty scenarios in all, none of them in two rows."""
    ids = [
        row
        for table in HERE.glob("README*.md")
        for row in re.findall(r"^\| (BR-\d+) \|", table.read_text(), re.MULTILINE)
    ]
    assert len(ids) == len(set(ids))
