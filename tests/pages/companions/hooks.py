"""A program with hooks: its app, the client of its lifespan, and the request that it serves."""

from contextlib import asynccontextmanager
from contextvars import ContextVar

from dibs import Dibs

url = "sqlite:///dibs.db"
app = Dibs(url)
request_id = ContextVar("request_id", default="r-1")
durations = []


class RateLimited(Exception):
    retry_after = 30


class Client:
    async def get(self, path):
        return f"got {path}"


@asynccontextmanager
async def make_client():
    yield Client()


def after():
    """The hooks of the page's last app are called around a run, at an enqueue and when it has failed."""
    import sentry_sdk

    sentry_sdk.init()

    @app.task(name="pays", max_attempts=1)
    def pays():
        raise ValueError("card 1234123412341234")

    job = pays.enqueue()
    app.worker(burst=True).run()
    assert "(card number)" in app.job(job.id).error
