"""`dibs metrics`: what the database knows of the queue, once or for scrapes."""

from __future__ import annotations

import signal
import threading
from contextlib import closing

import click

from dibs.app import Dibs
from dibs.cli.logs import log_to_stderr
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import print_json
from dibs.cli.problems import WrongUsage
from dibs.depths import Depths
from dibs.exposition import exposition, measure, require
from dibs.worker.signals import STOP_SIGNALS


@click.command()
@json_option
@click.option(
    "--serve", "port", metavar="PORT", type=click.IntRange(0, 65_535), help="Answer /metrics there, until stopped."
)
@click.option("--host", metavar="HOST", help="At this address alone; without it at all that the machine has.")
@pass_dibs
def metrics(dibs: Dibs, as_json: bool, port: int | None, host: str | None) -> None:
    """Show what the database knows of the queue, as metrics.

    Depth by queue and status, age of the oldest ready job, leases that are past, workers. In the text format of
    Prometheus, or with --json as data. What only a worker knows is served at its --health-port.
    """
    if port is None and host is not None:
        raise WrongUsage("--host goes with --serve")
    if port is not None and as_json:
        raise WrongUsage("--json and --serve exclude each other")
    with closing(Depths(dibs)) as depths:
        if port is not None:
            _serve(depths, host, port)
        elif as_json:
            print_json(depths.families(raises=True))
        else:
            require()
            click.echo(exposition(depths.families(raises=True)), nl=False)


def _serve(depths: Depths, host: str | None, port: int) -> None:
    from dibs.worker.probes import Probes

    require()
    log_to_stderr(None)
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in STOP_SIGNALS}
    try:
        with closing(Probes(None, host=host, port=port, measure=measure(depths.families))):
            while not stopping.wait(0.5):
                pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
