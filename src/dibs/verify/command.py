"""The command `dibs verify`: makes a place, has all tried there, and prints a line for each promise."""

from __future__ import annotations

import time

import click
import msgspec

from dibs.app import Dibs
from dibs.bench.command import ended_by_signals
from dibs.bench.progress import progress
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import print_json, printable
from dibs.cli.run import say
from dibs.cli.secrets import scrub
from dibs.errors import DatabaseError
from dibs.meanings import is_of_a_driver
from dibs.scratch import scratch
from dibs.verify.run import CHECKS, Finding, Outcome
from dibs.verify.run import verify as verified


class Report(msgspec.Struct):
    """All that was found. `passed`: did nothing fail? What was skipped was not tried."""

    database: str
    passed: bool
    seconds: float
    checks: list[Finding]


@click.command()
@json_option
@pass_dibs
def verify(dibs: Dibs, as_json: bool) -> None:
    """Try dibs' promises on your database, before you go live.

    Worker processes are killed, frozen and cut off; all on scratch tables, which are removed. Your jobs are not touched.
    Takes some seconds, under a minute if much fails. A line for each promise: PASS, FAIL or SKIPPED with what was seen. Leaves with 1 if
    something failed.
    """
    report = _report(dibs)
    if as_json:
        print_json(report)
    else:
        for finding in report.checks:
            click.echo(f"{finding.outcome:<7}  {finding.name:<21}  {printable(finding.evidence)}")
    if not report.passed:
        failed = [finding.name for finding in report.checks if finding.outcome is Outcome.FAIL]
        raise click.ClickException(f"{len(failed)} of {len(report.checks)} checks failed: {', '.join(failed)}")


def _report(dibs: Dibs) -> Report:
    began = time.monotonic()
    try:
        with ended_by_signals(), scratch(dibs, say) as place, progress(f"verifying {dibs.url}", len(CHECKS)) as step:
            findings = verified(place, lambda finding: step(1))
    except Exception as error:
        if is_of_a_driver(error):
            raise DatabaseError(str(error).strip() or type(error).__name__) from error
        raise
    finally:
        dibs.close()
    findings = [msgspec.structs.replace(each, evidence=scrub(each.evidence)) for each in findings]
    passed = all(finding.outcome is not Outcome.FAIL for finding in findings)
    return Report(str(dibs.url), passed, round(time.monotonic() - began, 3), findings)
