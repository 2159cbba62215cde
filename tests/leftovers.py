"""What the commands that work in a place of their own have left there."""

from __future__ import annotations

from databases import Database
from dibs import ops
from dibs.dialects.bench import measuring


def leftovers(db: Database) -> list[str]:
    """Return what runs of the bench and of verify have left in a database, or beside it."""
    app = db.app()
    if (file := app.url.file) is not None:
        return [path.name for path in file.parent.glob("*-bench-*")]
    connection = db.connect()
    try:
        return list(ops.run(measuring(app.dialect).tables(), connection))
    finally:
        connection.close()
