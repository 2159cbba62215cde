"""`dibs worker`: one worker in this process, or several in processes under a supervisor.

Until the worker runs, the handlers of `dibs.__main__` end the process at once when it is told to stop; then the
worker's own take over. At every moment one of them is set, so no signal is lost.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from dibs.app import Dibs
from dibs.cli.apps import load
from dibs.cli.logs import log_to_stderr
from dibs.cli.options import app_option_of, place_of, url_option
from dibs.cli.units import NAMES, duration, size
from dibs.metrics import Family
from dibs.worker import supervisor
from dibs.worker.health import Answer, Health
from dibs.worker.probes import METRICS, Ask
from dibs.worker.runtime import Door
from dibs.worker.supervisor import Supervisor, follow
from dibs.worker.worker import ASYNC_SLOTS, GRACE, LEASE, THREADS, Worker

logger = logging.getLogger("dibs")

#: In the context's `meta`: how this program is started, where that is not `python -m dibs`.
PROGRAM = "dibs.program"

#: Each option is also read from the environment, under this and its long name: `--max-jobs` from DIBS_WORKER_MAX_JOBS.
PREFIX = "DIBS_WORKER"

#: How long (seconds) a worker that was stopped waits for threads of the user's that nobody ends.
LAST_WAIT = 3.0


@click.command(
    context_settings={"auto_envvar_prefix": PREFIX},
    epilog=f"Each option is also read from the environment: --max-jobs from {PREFIX}_MAX_JOBS.",
)
@click.argument("app", required=False)
@app_option_of(f"{PREFIX}_APP")
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="QUEUE",
    multiple=True,
    type=NAMES,
    envvar=f"{PREFIX}_QUEUE",
    help="Only this queue; may be repeated: in this order, or, as QUEUE=3, by weight.",
)
@click.option(
    "-c",
    "--concurrency",
    metavar="N",
    type=int,
    help=f"Jobs at a time, of each kind of task: {THREADS} in threads, {ASYNC_SLOTS} async ones, and as many in "
    "processes as there are processors.",
)
@click.option("--ahead", metavar="N", type=int, help="Jobs claimed ahead of a free slot, at most; 0 for none.")
@click.option("--lease", metavar="TIME", type=duration, help=f"How long a claim is good if not renewed: {LEASE:g}s.")
@click.option(
    "--grace", metavar="TIME", type=duration, help=f"How long running jobs may go on when it is stopped: {GRACE:g}s."
)
@click.option("--burst", is_flag=True, help="End when nothing is due.")
@click.option("--max-jobs", metavar="N", type=click.IntRange(1), help="End after so many runs.")
@click.option("--max-memory", metavar="SIZE", type=size, help="Stop when it takes more memory, such as 512M.")
@click.option("--max-age", metavar="TIME", type=duration, help="Stop after this time, such as 2h.")
@click.option("--processes", metavar="N", type=click.IntRange(1, 1000), help="Supervise N worker processes.")
@click.option("--health-port", metavar="PORT", type=click.IntRange(0, 65_535), help="Answer /livez and /readyz there.")
@click.option("--health-host", metavar="HOST", help="At this address alone; without it at all that the machine has.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How the log is written: text.")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@click.option("--quiet", is_flag=True, help="Say only what is wrong.")
@url_option
@click.pass_context
def worker(
    context: click.Context,
    /,
    app: str | None,
    queues: tuple[str, ...],
    processes: int | None,
    health_port: int | None,
    health_host: str | None,
    log_format: str,
    verbose: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Run the jobs of an app until stopped.

    APP is module:attribute, such as myapp.jobs:app; the current directory is importable. Without it -A or DIBS_APP
    says which. SIGTERM and SIGINT stop the worker: what runs may end within the grace, the rest is given back. A second
    one ends it at once.
    """
    place = place_of(context, app)
    level = _level(context, verbose=verbose, quiet=quiet)
    measured = health_port is not None
    if supervisor.VARIABLE in os.environ:  # one of several: what it inherits of the environment is for the supervisor
        processes = health_port = None
    port = None if health_port is None else (health_host, health_port)
    if processes is not None:
        log_to_stderr(level, form=log_format)
        _warn_of_unknown(context)
        program = context.meta.get(PROGRAM, [sys.executable, "-m", "dibs"])
        command = [*program, *_for_one(sys.argv[1:])]
        grace = GRACE if settings["grace"] is None else settings["grace"]
        more = {f"{PREFIX}_URL": context.obj} if isinstance(context.obj, str) else {}
        several = Supervisor(command, processes=processes, grace=grace, burst=settings["burst"], environment=more)
        with _probes(several.ask, several.families, port):
            code = several.run()
        context.exit(code)
    given = {name: value for name, value in settings.items() if value is not None}
    _work(place, context, level, log_format, port, measured=measured, queues=weighed(queues), **given)


def weighed(queues: Sequence[str]) -> list[str] | dict[str, int] | None:
    """Return what -q said: names in order, or names with their weights if one has a weight; the others weigh 1 then."""
    parts = [queue.rpartition("=") for queue in queues]
    if not any(name and weight.isdecimal() for name, _, weight in parts):
        return list(queues) or None
    return {
        (name if name and weight.isdecimal() else queue): (int(weight) if name and weight.isdecimal() else 1)
        for queue, (name, _, weight) in zip(queues, parts, strict=True)
    }


def _work(
    place: str,
    context: click.Context,
    level: int | None,
    log_format: str,
    port: tuple[str | None, int] | None,
    *,
    measured: bool,
    **settings: Any,
) -> None:
    made: list[Worker] = []

    def stop() -> None:
        if not made:
            os._exit(0)
        made[0].stop()

    supervised = supervisor.VARIABLE in os.environ
    follow(stop)
    url: str | Dibs | None = context.obj
    dibs = load(place, url)
    log_to_stderr(level, form=log_format)
    if not supervised:
        _warn_of_unknown(context)
    made.append(dibs.worker(**settings))
    if measured:
        made[0].metrics.want_times()

    def ask(question: str) -> Answer:
        if question == METRICS:
            return Answer(True, "", {METRICS: msgspec.to_builtins(made[0].metrics.families())})
        health: Health = made[0].health
        return health.live() if question == "livez" else health.ready()

    with ExitStack() as asked:
        families: Callable[[], list[Family]] = made[0].metrics.families
        if port is not None:
            from dibs.depths import Depths

            depths = asked.enter_context(closing(Depths(dibs)))
            families = lambda: [*made[0].metrics.families(), *depths.families()]  # noqa: E731
        asked.enter_context(_probes(ask, families, port))
        asked.enter_context(closing(Door(ask)))
        made[0].run(signals=True)
    if not made[0].burst:
        threading.Thread(target=_end_anyway, daemon=True).start()


def _probes(ask: Ask, families: Callable[[], list[Family]], port: tuple[str | None, int] | None) -> ExitStack:
    """Return what listens for probes, if a port for them was named, until it is left."""
    listening = ExitStack()
    if port is not None:
        from dibs.exposition import measure
        from dibs.worker.probes import Probes  # its imports take 20 ms

        listening.enter_context(closing(Probes(ask, host=port[0], port=port[1], measure=measure(families))))
    return listening


def _level(context: click.Context, *, verbose: bool, quiet: bool) -> int | None:
    """Return from which level on to log; None: as usual. What is typed comes before what the environment says."""
    if verbose and quiet:
        typed = [
            name for name in ("verbose", "quiet") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        if len(typed) != 1:
            raise click.UsageError("--verbose and --quiet exclude each other")
        verbose, quiet = typed == ["verbose"], typed == ["quiet"]
    return logging.DEBUG if verbose else logging.WARNING if quiet else None


def _warn_of_unknown(context: click.Context) -> None:
    """Warn of variables that look like settings and are none: with a slip in its name a setting is not there at all."""
    known = {
        f"{PREFIX}_{name.upper().lstrip('-').replace('-', '_')}"
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
        if name.startswith("--")
    }
    for name in sorted(os.environ):
        # Kubernetes tells of a service named dibs-worker in variables such as DIBS_WORKER_PORT.
        if name.startswith(f"{PREFIX}_") and name not in known and not os.environ[name].startswith("tcp://"):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if near:
                logger.warning("%s is no setting of `dibs worker`: did you mean %s?", name, near[0])


def _end_anyway() -> None:
    """End the process although the interpreter waits for threads, such as a job's `asyncio.to_thread`."""
    time.sleep(LAST_WAIT)
    os._exit(0)


def _for_one(arguments: list[str]) -> list[str]:
    """Return the arguments for one of the processes. The URL, which may have a password in it, is none of them: anybody on
    the machine may list them."""
    kept = []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--processes", "--url"):
            next(rest)
        elif not argument.startswith(("--processes=", "--url=")):
            kept.append(argument)
    return kept
