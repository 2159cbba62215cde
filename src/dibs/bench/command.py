"""The command `dibs bench`: checks what was asked for, makes a place, measures there and prints."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

from dibs.app import Dibs
from dibs.bench.baseline import Baseline
from dibs.bench.figures import Result
from dibs.bench.measures import Asked, Bench
from dibs.bench.report import last_word, lines
from dibs.cli.apps import load
from dibs.cli.options import json_option, url_option
from dibs.cli.output import print_json
from dibs.cli.run import say
from dibs.errors import DatabaseError
from dibs.meanings import is_of_a_driver
from dibs.scratch import Place, scratch

F = TypeVar("F", bound=Callable[..., Any])

MEASURES = ("enqueue", "bulk", "drain", "latency", "idle")

WARNING = (
    "this puts as much load on {url} as it takes, and everybody else there will feel it; it works on tables of its "
    "own, which it removes, and touches no job of yours"
)


def place_options(function: F) -> F:
    """Let a command take what says where to measure."""
    # A parameter named `app` would be for frameworks to fill in; here one of them has given its app in the URL's place.
    options: list[Callable[[F], F]] = [
        click.option("--app", "module", metavar="APP", help="On the database of this app, such as myapp.jobs:app."),
        click.option("--yes", is_flag=True, help="Ask nothing."),
        json_option,
        url_option,
    ]
    for option in options:
        function = option(function)
    return function


def _only(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = MEASURES if value is None else tuple(name.strip() for name in value.split(","))
    if odd := [name for name in names if name not in MEASURES]:
        raise click.BadParameter(f"{', '.join(map(repr, odd))}: write some of {','.join(MEASURES)}")
    return names


@click.group(invoke_without_command=True)
@click.option("--jobs", metavar="N", type=click.IntRange(1, 10_000_000), default=50_000, help="How many: 50,000.")
@click.option("--workers", metavar="N", type=click.IntRange(1, 100), default=1, help="Worker processes that drain: 1.")
@click.option("-c", "--concurrency", metavar="N", type=click.IntRange(1, 10_000), help="Jobs at a time in each.")
@click.option("--async", "is_async", is_flag=True, help="Drain async tasks instead of sync ones.")
@click.option("--only", metavar="LIST", callback=_only, help=f"Some of {','.join(MEASURES)}.")
@click.option("--samples", metavar="N", type=click.IntRange(1, 100_000), default=40, help="Pick-ups to time: 40.")
@click.option(
    "--idle", metavar="SECONDS", type=click.FloatRange(1, 3600), default=10.0, help="How long to watch an idle one: 10."
)
@place_options
@click.pass_context
def bench(
    context: click.Context,
    /,
    module: str | None,
    yes: bool,
    as_json: bool,
    jobs: int,
    workers: int,
    concurrency: int | None,
    is_async: bool,
    only: tuple[str, ...],
    samples: int,
    idle: float,
) -> None:
    """Measure dibs on your database, and name the limit it runs into.

    Enqueues jobs one by one and in bulk, lets worker processes drain them, times how soon an idle worker picks a job
    up, and what it costs while there is none. Beside it the same in raw SQL. Takes a minute or two.

    `dibs bench strategies` measures the ways to claim a row.
    """
    if context.invoked_subcommand is not None:
        given = [name for name in context.params if context.get_parameter_source(name) is _COMMANDLINE]
        if given:
            raise click.UsageError(f"write the options of {context.invoked_subcommand} after it")
        return
    _refuse_unused(context, only)
    asked = Asked(jobs, workers, concurrency, is_async, samples, idle)
    with measured_place(context.obj, module, yes=yes) as (place, shown):
        result = _measure(place, shown, asked, only)
    if as_json:
        print_json(result)
    else:
        for line in lines(result):
            click.echo(line)
    if result.drain is not None and (result.drain.lost or result.drain.doubled):
        raise click.ClickException("jobs were lost or run twice: please report this, with the lines above")


def _refuse_unused(context: click.Context, only: tuple[str, ...]) -> None:
    """Raise UsageError for an option of a measure that is left out."""
    for option, measure in (("workers", "drain"), ("samples", "latency"), ("idle", "idle")):
        if measure not in only and context.get_parameter_source(option) is _COMMANDLINE:
            raise click.UsageError(f"--{option} is for {measure}, which --only leaves out")


_COMMANDLINE = click.core.ParameterSource.COMMANDLINE


@bench.command()
@click.option("--connections", metavar="N", type=click.IntRange(1, 1_000), default=20, help="That claim at once: 20.")
@click.option(
    "--seconds", metavar="SECONDS", type=click.FloatRange(0.1, 600), default=3.0, help="For each way and load: 3."
)
@click.option("--redis", "redis_url", metavar="URL", help="Measure a list in this Redis, too.")
@click.option("--plot", metavar="FILE", help="Draw it into this file, .svg or .png.")
@place_options
@click.pass_obj
def strategies(
    url: str | Dibs | None,
    /,
    module: str | None,
    yes: bool,
    as_json: bool,
    connections: int,
    seconds: float,
    redis_url: str | None,
    plot: str | None,
) -> None:
    """Measure the ways to claim a row side by side on your database.

    SKIP LOCKED one row and ten at a time, NOWAIT with retries, a blocking FOR UPDATE, an optimistic UPDATE, advisory
    locks; each with claims that are over at once and with claims that hold their row for 5 ms.
    """
    from dibs.bench import drawing, redis_list
    from dibs.bench.comparing import compare
    from dibs.bench.comparison import lines as lines_of

    if plot is not None:
        drawing.check(plot)
    if redis_url is not None:
        redis_list.check(redis_url)
    with measured_place(url, module, yes=yes) as (place, shown):
        comparison = compare(place, shown, connections=connections, seconds=seconds, redis_url=redis_url)
    if plot is not None:
        drawing.draw(comparison, plot)
    if as_json:
        print_json(comparison)
    else:
        for line in lines_of(comparison):
            click.echo(line)
        if plot is not None:
            click.echo(f"drawn into {plot}", err=True)


@contextmanager
def measured_place(url: str | Dibs | None, module: str | None, *, yes: bool) -> Iterator[tuple[Place, str]]:
    """Warn, ask where somebody can answer; yield a place and the URL to show. At the end, however that comes, the place
    is removed."""
    dibs = load(module, url) if module is not None else url if isinstance(url, Dibs) else Dibs(url)
    warning = WARNING.replace("{url}", str(dibs.url))
    try:
        if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
            say(warning)
        else:
            click.confirm(f"dibs: {warning}; go on?", abort=True, err=True)
        with ended_by_signals(), scratch(dibs, say) as place:
            yield place, str(dibs.url)
    except Exception as error:
        if is_of_a_driver(error):  # the bench asks much of a server by hand, and has nothing to try again
            raise DatabaseError(str(error).strip() or type(error).__name__) from error
        raise
    finally:
        dibs.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does: what was made is removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Any] = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _measure(place: Place, shown: str, asked: Asked, only: tuple[str, ...]) -> Result:
    baseline = Baseline(place, shown)
    result = Result(server=baseline.server, machine=baseline.machine)
    measures = Bench(place, baseline, asked)
    try:
        if "enqueue" in only:
            result.enqueue = measures.enqueue()
        if "bulk" in only:
            result.bulk = measures.bulk()
        if "drain" in only:
            result.drain = measures.drain()
        if "latency" in only or "idle" in only:
            result.latency, result.idle = measures.idle_worker(latency="latency" in only, idle="idle" in only)
    finally:
        measures.close()
    result.limit = last_word(result)[1]
    return result
