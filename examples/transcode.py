"""A long computation in a process of its own, with progress, which can be cancelled, and which deploys do not hold up.

What it computes is a stand-in for ffmpeg that needs nothing installed: a .gz is compressed anew as .xz.

    pip install sqlalchemy "dibs[postgres]"         # or dibs[mysql]
    export DATABASE_URL=postgresql+psycopg://me@localhost/media    # or mysql+pymysql://…, or sqlite:///media.db
    dibs migrate
    python transcode.py upload big.log.gz           # prints the job's id
    dibs worker transcode:queue

    dibs show 1         # how far it is
    dibs cancel 1       # ends it within a second or two; the half-written file is deleted

SIGTERM to the worker, as a deploy sends: the job is handed back at once, no attempt is counted, and the next worker
takes it.
"""

from __future__ import annotations

import gzip
import lzma
import os
import sys
from pathlib import Path

from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine, insert

from dibs import Dibs, current_job

CHUNK = 64 * 1024

engine = create_engine(os.environ["DATABASE_URL"])
queue = Dibs(engine.url)

metadata = MetaData()
uploads = Table("uploads", metadata, Column("path", String(500), primary_key=True), Column("job", BigInteger))


@queue.task(queue="transcodes", runs_in="process", timeout=6 * 3600)
def transcode(path: str) -> int:
    """Compress `x.gz` anew as `x.xz`, beside it; return how many bytes that is."""
    job = current_job()
    source, target = Path(path), Path(path).with_suffix(".xz")
    # Each run has a file of its own: one that has lost its job, and does not know yet, disturbs no other.
    partial = target.with_name(f"{target.name}.{job.id}-{job.claims}")
    for left in target.parent.glob(f"{target.name}.{job.id}-*"):  # by runs that were killed
        left.unlink(missing_ok=True)
    try:
        with source.open("rb") as packed, gzip.open(packed) as plain, lzma.open(partial, "wb") as anew:
            size = source.stat().st_size
            while chunk := plain.read(CHUNK):
                job.check()  # raises when a person cancels, the worker stops, or the time is up
                anew.write(chunk)
                job.progress(packed.tell() / size, note=f"{packed.tell():,} of {size:,} bytes")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def upload(path: Path) -> int:
    """Note a file and enqueue its transcoding, in one transaction; return the job's id."""
    with engine.begin() as connection, queue.transaction(connection):
        job = transcode.enqueue(str(path.resolve()))
        connection.execute(insert(uploads).values(path=str(path.resolve()), job=job.id))  # an error, the second time
    return job.id


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upload", path]:
            metadata.create_all(engine)
            print(upload(Path(path)))
        case _:
            sys.exit("usage: transcode.py upload FILE.gz")
