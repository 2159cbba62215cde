"""A web application with an app of dibs'; after the page a job is done inside of its server."""

from contextlib import asynccontextmanager  # noqa: F401

from fastapi import FastAPI  # noqa: F401

from dibs import Dibs

app = Dibs()


@app.task
def ping() -> str:
    return "pong"


def after():
    """While the server is up, its worker runs what is enqueued."""
    from fastapi.testclient import TestClient

    with TestClient(api):  # noqa: F821
        assert ping.enqueue().join(timeout=10) == "pong"
