"""A shop whose charge has failed, since the other side was down; after the page it has been sent round again."""

from datetime import timedelta  # noqa: F401

from dibs import Dibs

app = Dibs()


@app.task(name="shop.charge", max_attempts=1)
def charge() -> None:
    raise ConnectionError("the bank is closed")


failed = charge.enqueue()
app.worker(burst=True).run()


def after():
    """What had failed is ready again."""
    assert app.job(failed.id).status == "ready"
