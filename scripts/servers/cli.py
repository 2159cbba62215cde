"""`python scripts/servers`: run any command with database servers, which end with it.

python scripts/servers run postgres mysql -- pytest
python scripts/servers run postgres@14 -o postgres.max_connections=50 -- bash
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from servers import matrix
from servers.catalogue import DEFAULTS, TITLES, VERSIONS, engine
from servers.errors import Unavailable
from servers.fleet import Berth, Fleet, berths, fleet
from servers.places import cache
from servers.progress import say


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    ours, command = list(arguments), []
    if "--" in ours:
        at = ours.index("--")
        ours, command = ours[:at], ours[at + 1 :]
    parser = _parser()
    asked = parser.parse_args(ours)
    try:
        if asked.action == "list":
            return list_versions()
        if asked.action == "cache":
            print(cache())
            return 0
        if asked.action == "matrix":
            return matrix.run(asked.targets, asked.seconds, command)
        if asked.action == "fetch":
            return fetch(berths(asked.targets))
        if not command:
            parser.error("which command? write it after --")
        return run(asked, command)
    except Unavailable as unavailable:
        say(f"error: {unavailable}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    what = "Run any command with database servers, which end with it."
    parser = argparse.ArgumentParser(prog="python scripts/servers", description=what)
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("run", help="run a command with servers; their URLs are in DIBS_TEST_<KIND>_URL")
    one.add_argument(
        "targets",
        nargs="+",
        metavar="kind[@version]",
        help="postgres, mysql, mariadb@11.8; pgbouncer stands before postgres",
    )
    one.add_argument("--durable", action="store_true", help="each commit is on the disk, as in production")
    one.add_argument("-o", dest="options", action="append", default=[], metavar="kind.option=value")
    one.add_argument("--strict", action="store_true", help="fail if one of the servers can't be had")
    one.add_argument("--report", action="store_true", help="say at the end which databases there were")
    other = actions.add_parser("fetch", help="download what `run` would need")
    other.add_argument("targets", nargs="+", metavar="kind[@version]")
    every = actions.add_parser("matrix", help="run a command once for every version of every database")
    every.add_argument("targets", nargs="*", metavar="kind[@version]", help="only these")
    every.add_argument("--seconds", type=float, default=900, help="how long one run may take (900)")
    actions.add_parser("list", help="print the versions there are")
    actions.add_parser("cache", help="print the folder that downloads are kept in")
    return parser


def run(asked: argparse.Namespace, command: Sequence[str]) -> int:
    """Start the servers, run the command, end the servers; return the command's exit code."""
    wanted = berths(asked.targets)
    if starting := [berth.title for berth in wanted if not berth.given]:
        say(f"starting {', '.join(starting)}")
    with fleet(wanted, durable=asked.durable, options=read_options(asked.options)) as present:
        for title, reason in present.absent.items():
            say(f"{'error' if asked.strict else 'warning'}: no {title}: {reason}")
        if asked.strict and present.absent:
            return 1
        code = run_with(present, command)
    if asked.report:
        print(present.report(), flush=True)
    return code


def run_with(present: Fleet, command: Sequence[str]) -> int:
    """Run the command with the servers' URLs; pass on what we are told to end with."""
    try:
        child = subprocess.Popen(command, env=os.environ | present.urls)
    except OSError as error:
        say(f"error: {command[0]}: {error.strerror}")
        return 127

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    # A terminal sends Ctrl-C to the command too: what to do about it is the command's business.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, pass_on)
    code = child.wait()
    return code if code >= 0 else 128 - code


def fetch(wanted: Sequence[Berth]) -> int:
    """Download programs; return 1 if some are not to be had."""
    missing = 0
    with ThreadPoolExecutor() as fetchers:
        fetching = [(berth, fetchers.submit(engine, berth.kind, berth.version)) for berth in wanted]
        for berth, future in fetching:
            try:
                got = future.result()
            except Unavailable as unavailable:
                missing = 1
                say(f"error: no {berth.title}: {unavailable}")
            else:
                print(f"{got} ({got.source})")
    return missing


def list_versions() -> int:
    """Print every version that can be asked for."""
    for kind, versions in VERSIONS.items():
        for version in versions:
            default = "  (default)" if version == DEFAULTS[kind] else ""
            print(f"{kind}@{version}  {TITLES[kind]} {version}{default}")
    return 0


def read_options(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read `mysql.binlog_format=STATEMENT`.

    >>> read_options(["mysql.binlog_format=STATEMENT"])
    {'mysql': {'binlog_format': 'STATEMENT'}}
    """
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        kind, _, option = name.partition(".")
        if not separator or not option or kind not in DEFAULTS:
            raise ValueError(f"an option is kind.option=value, such as mysql.binlog_format=STATEMENT: {text}")
        options.setdefault(kind, {})[option] = value
    return options
