"""dibs beside its peers, and beside raw SQL, on this machine: alternating pairs, every job accounted for.

    scripts/setup dev, then
    .venv/bin/python benchmarks/peers                       # all of it; on a quiet machine, it takes an hour or two
    .venv/bin/python benchmarks/peers drain --only pgqueuer --only graphile-worker
    .venv/bin/python benchmarks/peers raw --kind mysql --kind mariadb --pairs 3 --jobs 5000
    .venv/bin/python benchmarks/peers --json > results.json

Servers are throwaway ones with each commit on the disk. Peers are installed into the cache folder (DIBS_CACHE,
XDG_CACHE_HOME) the first time. One that can't be had is named on stderr and left out; so is one that loses a job or
runs it twice, and then the exit code is 1.

measures:
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ours.command import end_like_ctrl_c, machine, positive, refuse_unknown, servers_given
from servers.errors import Unavailable
from servers.progress import say

from peers.contest import KINDS, Row, pairs_of, run
from peers.grounds import Grounds
from peers.measures import MEASURES, Measure, Size
from peers.peer import PEERS, RAW
from peers.process import Failed
from peers.report import lines


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    asked = _asked(arguments)
    if asked.list:
        _list()
        return 0
    end_like_ctrl_c()
    size = Size(asked.jobs, asked.singles, asked.samples, asked.seconds)
    rows: list[Row] = []
    failed = 0
    try:
        for measure in MEASURES:
            if not asked.measures or measure.name in asked.measures:
                failed += _measure(measure, asked, asked.given, size, rows)
    except KeyboardInterrupt:
        say("stopped; this is what was measured so far")
        failed += 1
    if asked.json:
        print(json.dumps({"machine": machine(), "rows": [row.plain() for row in rows]}, indent=1))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine().items()))
        for line in lines(rows):
            print(line)
    return 1 if failed else 0


def _measure(measure: Measure, asked: argparse.Namespace, given: dict[str, str], size: Size, rows: list[Row]) -> int:
    """Measure dibs beside everybody who is wanted, adding to the rows; return how many failed."""
    failed = 0
    with Grounds(given, counting=measure.name == "idle") as grounds:
        for pair in pairs_of(measure, asked.kind or KINDS, asked.only):
            try:
                rows += run(grounds, measure, pair, size, asked.pairs)
            except Unavailable as unavailable:
                say(f"{measure.name}: {pair.theirs.name} is left out: {unavailable.reason}")
            except Failed as failure:
                say(f"{measure.name}: beside {pair.theirs.name}: {failure}")
                failed += 1
    return failed


def _parser() -> argparse.ArgumentParser:
    measures = "\n".join(f"    {measure.name:12} {measure.title}" for measure in MEASURES)
    parser = argparse.ArgumentParser(
        prog="benchmarks/peers",
        description=(__doc__ or "") + measures,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [measure.name for measure in MEASURES]
    parser.add_argument("measures", nargs="*", metavar="measure", help=f"which (all unless said): {', '.join(names)}")
    parser.add_argument("--only", action="append", default=[], metavar="PEER", help="beside this one only; repeatable")
    parser.add_argument("--kind", action="append", choices=KINDS, help="on this database only; repeatable")
    parser.add_argument("--pairs", type=positive, default=7, help="alternating pairs (7)")
    parser.add_argument(
        "--jobs", type=positive, default=20_000, help="jobs in a drain, and a fifth of those in a bulk (20000)"
    )
    parser.add_argument("--singles", type=positive, default=2_000, help="jobs where each costs a round trip (2000)")
    parser.add_argument("--samples", type=positive, default=200, help="jobs in a measure of latency (200)")
    parser.add_argument("--seconds", type=positive, default=30, help="of an idle worker (30)")
    parser.add_argument(
        "--url", action="append", default=[], help="use this server instead of a throwaway one of its kind; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="all figures of all pairs")
    parser.add_argument("--list", action="store_true", help="the peers, their versions and settings; measures nothing")
    return parser


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit with 2 and a sentence where a name is unknown."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    refuse_unknown(
        parser,
        ("measure", asked.measures, [measure.name for measure in MEASURES]),
        ("peer", asked.only, [peer.name for peer in (*PEERS, RAW)]),
    )
    asked.given = servers_given(parser, asked.url)
    return asked


def _list() -> None:
    for peer in (*PEERS, RAW):
        print(f"{peer.name}: {', '.join(peer.pins) or 'on the tables of dibs'}; {peer.note}")
