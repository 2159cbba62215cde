"""`dibs doctor`: what is wrong, why it matters, and what to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json
from dibs.cli.problems import Warned
from dibs.cli.secrets import scrub
from dibs.doctor.examination import examine
from dibs.findings import Finding, Level, Report

#: Seconds until it says what it is at.
QUIET = 1.0


class _Progress:
    """Says on stderr which check is under way, once the whole takes more than a second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end = time.monotonic() + QUIET
        self._check = ""

    def step(self, check: str) -> None:
        with self._lock:
            self._check = check
            if time.monotonic() > self._end:
                self._say()

    def late(self) -> None:
        with self._lock:
            self._say()

    def _say(self) -> None:
        if self._check:
            click.echo(f"checking {self._check}", err=True)
            self._check = ""


@contextmanager
def _progress() -> Iterator[_Progress]:
    progress = _Progress()
    timer = threading.Timer(QUIET, progress.late)
    timer.daemon = True
    timer.start()
    try:
        yield progress
    finally:
        timer.cancel()


@click.command()
@json_option
@pass_dibs
def doctor(dibs: Dibs, as_json: bool) -> None:
    """Check the tables, the server and how the queue is served.

    It only looks, and at a bounded number of rows. A line for each check: OK, WARN, FAIL, or SKIPPED where the database has
    no such thing; under it why it matters, and the fix to paste. Leaves with 0 if all is well, with 1 if something
    failed, with 5 if there are warnings alone.
    """
    with _progress() as progress:
        report = examine(dibs, step=progress.step)
    checks = [_clean(finding) for finding in report.checks]
    report = msgspec.structs.replace(report, checks=checks)
    if as_json:
        print_json(report)
    else:
        for finding in report.checks:
            _print(finding)
    _end(report)


def _clean(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, found=scrub(finding.found), fix=scrub(finding.fix))


def _print(finding: Finding) -> None:
    click.echo(f"{finding.level:<7}  {finding.check:<15}  {cell(finding.found)}".rstrip())
    for label, text in (("why", finding.why), ("fix", finding.fix)):
        if text:
            click.echo(f"{'':<26}{label}: {cell(text)}")


def _end(report: Report) -> None:
    for level, raised in ((Level.FAIL, click.ClickException), (Level.WARN, Warned)):
        if named := [finding.check for finding in report.checks if finding.level is level]:
            said = "failed" if level is Level.FAIL else "warned"
            raise raised(f"{len(named)} of {len(report.checks)} checks {said}: {', '.join(named)}")
