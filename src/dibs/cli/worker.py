"""`dibs worker`: one worker in this process, or several in processes under a supervisor.

Until the worker runs, the handlers of `dibs.__main__` end the process at once when it is told to stop; then the
worker's own take over. At every moment one of them is set, so no signal is lost.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

import click

from dibs.app import Dibs
from dibs.cli.apps import load
from dibs.cli.logs import log_to_stderr
from dibs.cli.options import url_option
from dibs.worker.supervisor import Supervisor, follow
from dibs.worker.worker import ASYNC_SLOTS, GRACE, LEASE, THREADS, Worker

#: In the context's `meta`: how this program is started, where that is not `python -m dibs`.
PROGRAM = "dibs.program"

#: How long (seconds) a worker that was stopped waits for threads of the user's that nobody ends.
LAST_WAIT = 3.0


@click.command()
@click.argument("app")
@click.option("-q", "--queue", "queues", metavar="QUEUE", multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "-c",
    "--concurrency",
    metavar="N",
    type=int,
    help=f"Jobs at a time, per process: {THREADS} threads, and {ASYNC_SLOTS} async ones.",
)
@click.option("--lease", metavar="SECONDS", type=float, help=f"How long a claim is good if not renewed: {LEASE:g}.")
@click.option(
    "--grace", metavar="SECONDS", type=float, help=f"How long running jobs may go on when it is stopped: {GRACE:g}."
)
@click.option("--burst", is_flag=True, help="End when nothing is due.")
@click.option("--processes", metavar="N", type=click.IntRange(1, 1000), help="Supervise N worker processes.")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@click.option("--quiet", is_flag=True, help="Say only what is wrong.")
@url_option
@click.pass_context
def worker(
    context: click.Context,
    app: str,
    queues: tuple[str, ...],
    concurrency: int | None,
    lease: float | None,
    grace: float | None,
    burst: bool,
    processes: int | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Run the jobs of an app until stopped.

    APP is module:attribute, such as myapp.jobs:app; the current directory is importable. SIGTERM and SIGINT stop
    the worker: what runs may end within the grace, the rest is given back. A second one ends it at once.
    """
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    level = logging.DEBUG if verbose else logging.WARNING if quiet else None
    if processes is not None:
        log_to_stderr(level)
        program = context.meta.get(PROGRAM, [sys.executable, "-m", "dibs"])
        command = [*program, *_without_processes(sys.argv[1:])]
        context.exit(
            Supervisor(command, processes=processes, grace=GRACE if grace is None else grace, burst=burst).run()
        )
    given = {"queues": list(queues) or None, "concurrency": concurrency, "lease": lease, "grace": grace}
    settings = {name: value for name, value in given.items() if value is not None}
    _work(app, context.obj, level, burst=burst, **settings)


def _work(place: str, url: str | Dibs | None, level: int | None, **settings: Any) -> None:
    made: list[Worker] = []

    def stop() -> None:
        if not made:
            os._exit(0)
        made[0].stop()

    follow(stop)
    dibs = load(place, url)
    log_to_stderr(level)
    made.append(dibs.worker(**settings))
    made[0].run(signals=True)
    if not made[0].burst:
        threading.Thread(target=_end_anyway, daemon=True).start()


def _end_anyway() -> None:
    """End the process although the interpreter waits for threads, such as a job's `asyncio.to_thread`."""
    time.sleep(LAST_WAIT)
    os._exit(0)


def _without_processes(arguments: list[str]) -> list[str]:
    """Return the arguments for one of the processes."""
    kept = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--processes":
            next(rest)
        elif not argument.startswith("--processes="):
            kept.append(argument)
    return kept
