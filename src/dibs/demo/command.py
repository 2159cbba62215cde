"""The command `dibs demo`: checks what was asked for, runs the demonstration and prints its proof."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, url_option
from dibs.cli.output import print_json
from dibs.cli.run import say
from dibs.demo.demonstration import Demonstration
from dibs.demo.files import NOT_THE_LIBRARY, Listing, list_files, standard_library
from dibs.demo.folder import Folder, default_path
from dibs.demo.report import Report, figures, skipped
from dibs.dialects import file_url


@click.command()
@click.argument("directory", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--workers", metavar="N", type=click.IntRange(2, 32), default=3, help="Worker processes: 3, at least 2.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where the results go: dibs-demo.")
@json_option
@url_option
@click.pass_obj
def demo(url: str | None, directory: str | None, workers: int, out: Path | None, as_json: bool) -> None:
    """See dibs at work on real files while a worker is killed.

    Takes the files in and below DIRECTORY (Python's standard library), enqueues a job for each, and starts worker
    processes that compress them into the output folder. Kills one of them (SIGKILL) in the middle of its jobs, and
    enqueues everything a second time meanwhile. Then it checks every result against its source, and the database
    against what the tasks say they did: nothing may be lost, nothing doubled. If anything is off it exits with 1.

    Without --url the queue is in a file in the output folder. With it, the tables are made or updated as by
    `dibs migrate`, and the demo works in a queue of its own.
    """
    folder = Folder(out if out is not None else default_path())
    listing = _listing(directory, folder)
    folder.take()
    try:
        where = url if url is not None else file_url(folder.database)
        app = Dibs(where)
        try:
            app.migrate()
            demonstration = Demonstration(app, where, listing, folder, workers=workers)
            proof, course = demonstration.run()
        finally:
            app.close()
    finally:
        folder.leave()
    if as_json:
        print_json(figures(proof, course))
    else:
        for line in Report(proof, course, listing, folder, app).lines():
            click.echo(line)
    for problem in proof.problems:
        say(problem)
    if proof.problems:
        raise click.exceptions.Exit(1)


def _listing(directory: str | None, folder: Folder) -> Listing:
    root = os.path.realpath(directory if directory is not None else standard_library())
    out = os.path.realpath(folder.path)
    if os.path.commonpath([root, out]) == out:
        raise click.UsageError(
            f"the directory is in the output folder {folder.path}, which is emptied first: choose another with --out"
        )
    leave_out = NOT_THE_LIBRARY if directory is None else frozenset()
    listing = list_files(root, without=folder.path, leave_out=leave_out)
    if not listing.files:
        beside = f" (only {skipped(listing)})" if listing.skipped else ""
        raise click.ClickException(f"there is no file to compress in {click.format_filename(root)}{beside}")
    return listing
