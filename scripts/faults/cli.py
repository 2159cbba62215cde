"""`python scripts/faults`: parse, run, print. Results go to stdout, the rest to stderr."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec
from servers import Unavailable

from dibs import DatabaseError
from faults import chaos, mutants, steps
from faults.ground import KINDS


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    signal.signal(signal.SIGTERM, _leave)
    parser = argparse.ArgumentParser(prog="faults", description="Faults on purpose.")
    actions = parser.add_subparsers(dest="action", required=True)
    _chaos(actions)
    _steps(actions)
    _mutants(actions)
    asked = parser.parse_args(arguments)
    try:
        code: int = asked.run(asked)
    except (Unavailable, DatabaseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # what was started is ended, what was made is removed


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _command(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str | None
) -> argparse.ArgumentParser:
    return actions.add_parser(name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def _counted(counts: Mapping[str, int]) -> list[str]:
    return ["what came of it", *(f"  {number:6,}  {what}" for what, number in counts.items())]


def _violated(violations: Sequence[str]) -> list[str]:
    return [f"{len(violations)} violations", *(f"  {violation}" for violation in violations)]


# -- chaos -------------------------------------------------------------------------------------------------


def _chaos(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(actions, "chaos", chaos.__doc__)
    parser.add_argument("--database", choices=sorted(set(KINDS.values())), help="which (postgres, or that of --url)")
    parser.add_argument(
        "--url", help="use this server, which is neither killed nor restarted, in a database of its own"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the storm lasts (5)")
    parser.add_argument("--seed", type=int, default=1, help="the order of blows (1)")
    parser.add_argument("--blows", type=int, help="how many (22 a minute)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (4)")
    parser.add_argument("--producers", type=int, default=2, help="producer processes (2)")
    parser.add_argument("--lease", type=float, default=3.0, help="seconds (3)")
    parser.add_argument("--keep", type=Path, help="leave the books and logs in this folder")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=_run_chaos, parser=parser)


def _kind_of(asked: argparse.Namespace) -> str:
    """Return which database the URL is of; exit with 2 and a sentence where it is no server's, or not of the kind that
    was asked for."""
    kind = KINDS.get(asked.url.partition("://")[0])
    if kind in (None, "sqlite") or (asked.database and kind not in (asked.database, *asked.database)):
        asked.parser.error("--url takes the URL of a server, of the kind that --database says")
    return str(kind)


def _run_chaos(asked: argparse.Namespace) -> int:
    database = _kind_of(asked) if asked.url else asked.database
    settings = chaos.Settings(
        database=database or "postgres",
        url=asked.url,
        minutes=asked.minutes,
        seed=asked.seed,
        blows=asked.blows or max(round(asked.minutes * 22), 5),
        workers=asked.workers,
        producers=asked.producers,
        lease=asked.lease,
    )
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    report = chaos.run(settings, say, keep=asked.keep)
    if asked.json:
        print(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        print("\n".join(_told(report)))
    return 1 if report.violations else 0


def _told(report: chaos.Report) -> list[str]:
    blows = sum(report.blows.values())
    lines = [f"{report.database}, seed {report.seed}: {blows} blows in {report.seconds:g} s"]
    lines += [f"  {number:4}  {kind}" for kind, number in report.blows.items()]
    lines += [f"  {number:4}  left out, since the server was away: {kind}" for kind, number in report.missed.items()]
    lines += _counted(report.counts)
    lines.append(f"all at work and all done {report.back_at_work:g} s after the storm")
    return lines + _violated(report.violations)


# -- steps -------------------------------------------------------------------------------------------------


def _steps(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(actions, "steps", steps.__doc__)
    parser.add_argument(
        "--database", choices=sorted(set(KINDS.values())), action="append", help="only this; repeatable"
    )
    parser.add_argument("--url", help="use this server, in a database of its own")
    parser.add_argument("--every", type=int, default=1, help="strike every n-th request only (1)")
    parser.add_argument("--keep", type=Path, help="leave the books and logs in this folder")
    parser.add_argument("--json", action="store_true", help="the reports as a list in JSON")
    parser.set_defaults(run=_run_steps, parser=parser)


def _run_steps(asked: argparse.Namespace) -> int:
    databases = [_kind_of(asked)] if asked.url else asked.database or list(mutants.ALL)
    if len(databases) > 1:
        return _each_by_itself(asked, databases)
    report = steps.run(databases[0], asked.url, every=asked.every, say=say, keep=asked.keep)
    print(json.dumps([msgspec.to_builtins(report)], indent=2) if asked.json else "\n".join(_told_steps(report)))
    return 1 if report.violations else 0


def _each_by_itself(asked: argparse.Namespace, databases: Sequence[str]) -> int:
    """Give each database a process, since the ledger is one program for one database."""
    codes: list[int] = []
    reports: list[object] = []
    for database in databases:
        command = [sys.executable, str(Path(__file__).parent), "steps", "--database", database]
        command += ["--every", str(asked.every)]
        command += ["--keep", str(asked.keep / database)] if asked.keep else []
        if asked.json:
            ended = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=False)
            reports += json.loads(ended.stdout) if ended.stdout else []
        else:
            ended = subprocess.run(command, check=False)
        codes.append(ended.returncode)
    if asked.json:
        print(json.dumps(reports, indent=2))
    return max(codes)


def _told_steps(report: steps.Report) -> list[str]:
    lines = [f"{report.database}: {report.victims} victims in {report.seconds:g} s"]
    lines.append(f"  {report.killed:4} killed, {report.cut_off} cut off, at these requests")
    lines += [f"  {number:4}  {label}" for label, number in report.steps.items()]
    lines += [f"  never {way}: {', '.join(labels)}" for way, labels in report.not_struck.items()]
    return lines + _counted(report.counts) + _violated(report.violations)


# -- mutants -----------------------------------------------------------------------------------------------


def _mutants(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(actions, "mutants", mutants.__doc__)
    parser.add_argument("names", nargs="*", metavar="defect", help=f"which (all): {', '.join(mutants.BY_NAME)}")
    parser.add_argument("--database", choices=mutants.ALL, action="append", help="only this; repeatable")
    parser.add_argument("--times", type=int, default=3, help="how often each is tried (3)")
    parser.add_argument("--apply", action="store_true", help="only look whether each still fits the code")
    parser.add_argument("--json", action="store_true", help="the results as JSON")
    parser.set_defaults(run=_run_mutants, parser=parser)


def _run_mutants(asked: argparse.Namespace) -> int:
    if unknown := [name for name in asked.names if name not in mutants.BY_NAME]:
        asked.parser.error(f"no such defect: {', '.join(unknown)} (there are {', '.join(mutants.BY_NAME)})")
    results: list[mutants.Result] = []
    problems: list[str] = []
    for name in asked.names or mutants.BY_NAME:
        mutant = mutants.BY_NAME[name]
        databases = [] if asked.apply else asked.database or mutants.ALL
        try:
            results += mutants.try_out(mutant, databases, times=asked.times, say=say)
        except mutants.DoesNotFit as error:
            problems.append(str(error))
    for each in results:
        if not each.control:
            problems.append(f"{each.mutant} on {each.database}: its tests fail without it, too")
        elif each.caught < each.tries:
            problems.append(f"{each.mutant} on {each.database} was not noticed")
    if asked.json:
        print(json.dumps({"results": msgspec.to_builtins(results), "problems": problems}, indent=2))
    else:
        for each in results:
            print(f"{each.mutant:<12} {each.database:<9} noticed {each.caught} of {each.tries}  {each.evidence}")
        print("\n".join(problems) or "each defect fits the code" + ("" if asked.apply else ", and each was noticed"))
    return 1 if problems else 0
