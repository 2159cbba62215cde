"""The example that the page is about, on a file; and after the page its tests, which the page shows."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]).resolve().parents[1] / "examples"))
os.environ["DATABASE_URL"] = f"sqlite:///{Path.cwd()}/shop.db"


def after():
    """An order is paid, and a refused one has no job."""
    import flask_shop

    flask_shop.queue.migrate()
    test_an_order_is_paid()  # noqa: F821
    test_a_refused_order_has_no_job()  # noqa: F821
