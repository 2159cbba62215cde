"""The page on deploys: its snippets are one program that runs, and does what the page says."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

from dibs import Dibs, checks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploys.md").read_text()


def test_the_snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that an older version wrote wait for each of the tasks; the page's code fits and runs them all."""
    monkeypatch.chdir(tmp_path)
    old = Dibs("sqlite:///shop.db")
    jobs = [
        old.task(name="shop.tasks.send_mail")(lambda order_id: None).enqueue(1),
        old.task(name="mail.remind")(lambda order_id: None).enqueue(2),
        old.task(name="mail.thank")(lambda order_id, tone: None).enqueue(3, tone="kind"),
    ]
    page = types.ModuleType("page")
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), page.__dict__)
    assert checks.check(page.app) == checks.Checked(jobs=3, schema=checks.check(old).schema)
    page.app.worker(burst=True).run()
    assert [(old.job(job.id).status, old.job(job.id).attempts) for job in jobs] == [("done", 1)] * 3
    old.close()
    page.app.close()


def test_its_links() -> None:
    """Every file that it names is there."""
    named = [*re.findall(r"\]\(([^)#:]+)\)", PAGE), *re.findall(r"`(tests/[\w/]+\.py)`", PAGE)]
    assert named
    assert [name for name in named if not ((ROOT / "docs" / name).exists() or (ROOT / name).exists())] == []
