"""The example that the page is about, on a file; and after the page its tests, which the page shows."""

import os
import sys
from pathlib import Path

examples = str(Path(sys.argv[1]).resolve().parents[1] / "examples")
sys.path.insert(0, examples)
os.environ["PYTHONPATH"] = os.pathsep.join([examples, os.environ["PYTHONPATH"]])
os.environ["DATABASE_URL"] = f"sqlite+aiosqlite:///{Path.cwd()}/orders.db"


def after():
    """An order is exported, and a refused one has no job."""
    import fastapi_orders

    fastapi_orders.queue.migrate()
    test_an_order_is_exported()  # noqa: F821
    test_a_refused_order_has_no_job()  # noqa: F821
