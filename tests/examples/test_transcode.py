"""The long computation in a process: it tells how far it is, can be cancelled, and yields to a deploy."""

from __future__ import annotations

import gzip
import lzma
import random
from pathlib import Path

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

ON = pytest.mark.parametrize("example", [("mysql", "mysql+pymysql")], indirect=True)


def write_log(path: Path, lines: int) -> bytes:
    """Write a file that takes a while to be compressed; return what is in it."""
    dice = random.Random(7)
    text = "".join(f"{n} {dice.random()} GET /item/{dice.randrange(10**6)} 200\n" for n in range(lines)).encode()
    path.write_bytes(gzip.compress(text, 1))
    return text


@ON
def test_it_is_cancelled_and_handed_on(example: Example) -> None:
    """Cancelled it leaves no file behind; stopped by SIGTERM it is handed back, uncounted, and done by the next."""
    doomed, wanted = example.folder / "doomed.gz", example.folder / "wanted.gz"
    write_log(doomed, 150_000)
    content = write_log(wanted, 45_000)
    first = int(example.run("transcode.py", "upload", str(doomed)))

    worker = example.worker("transcode:queue", "-c", "1")
    progress = wait_for(lambda: example.queue.job(first).progress, what="progress")
    assert 0 < progress["done"] < 1
    assert "bytes" in progress["note"]
    example.run("-m", "dibs", "cancel", str(first))
    wait_for(lambda: example.queue.job(first).status is State.CANCELLED, what="the cancelling")
    assert [path.name for path in example.folder.glob("doomed*")] == ["doomed.gz"]

    second = int(example.run("transcode.py", "upload", str(wanted)))
    wait_for(lambda: list(example.folder.glob("wanted.xz.*")), what="the half-written file")
    assert worker.stop() == 0, worker.log()
    job = example.queue.job(second)
    assert (job.status, job.attempts, job.releases) == (State.READY, 0, 1), worker.log()
    assert [path.name for path in example.folder.glob("wanted*")] == ["wanted.gz"]

    example.worker("transcode:queue")
    wait_for(lambda: example.queue.job(second).status is State.DONE, what="the transcoding")
    result = example.folder / "wanted.xz"
    assert lzma.decompress(result.read_bytes()) == content
    job = example.queue.job(second)
    assert (job.result, job.attempts) == (result.stat().st_size, 1)


@ON
def test_a_rollback_leaves_no_job(example: Example) -> None:
    """A file that was uploaded before is refused in the transaction that had enqueued its transcoding."""
    write_log(example.folder / "small.gz", 10)
    example.run("transcode.py", "upload", str(example.folder / "small.gz"))
    assert "IntegrityError" in example.run("transcode.py", "upload", str(example.folder / "small.gz"), code=1)
    assert len(example.queue.jobs()) == 1
