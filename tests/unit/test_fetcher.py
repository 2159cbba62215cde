"""The fetcher's ears: what it lets itself be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs import Dibs
from dibs.worker.fetcher import Fetcher
from dibs.worker.outage import Outage
from dibs.worker.runs import Holdings


@pytest.mark.parametrize(("queues", "heeded"), [(None, [True, True]), (["mine"], [True, False])])
def test_others_queues_wake_nobody(tmp_path: Path, queues: list[str] | None, heeded: list[bool]) -> None:
    """A worker of one queue does not look up at each job of the others; one of all queues does."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")
    for queue, expected in zip(("mine", "theirs"), heeded, strict=True):
        fetcher = Fetcher(
            app,
            app.store,
            worker="w",
            lease=60.0,
            queues=queues,
            holdings=Holdings(),
            outage=Outage(),
            burst=False,
            idle_poll=1.0,
        )
        fetcher.wake(queue)
        assert fetcher._bell.is_set() is expected
