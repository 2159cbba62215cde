"""The documentation shows what works: Python and sessions are run, commands and data are read by who would read them."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml

from commands import environment
from databases import NAMES, migrated
from pages import command_lines
from pages.reading import PAGES, blocks, companion

#: Languages of blocks that nothing is done with. All others are run, or read.
SHOWN = {"", "text", "mermaid", "sql", "html", "dockerfile", "diff"}
RUN = {"python", "console"}
READ = {"json", "yaml", "toml", "ini"} | command_lines.SHELL

SKIP = re.compile(r"<!-- *skip.*?-->", re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if RUN & {block.language for block in blocks(page)}], ids=lambda page: page.name
)
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    """From top to bottom, in a process and a folder of its own, on the database that its companion names (SQLite)."""
    (folder := tmp_path / "page").mkdir()
    with url_for(page, tmp_path) as url:
        ran = run(page, folder, url)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```", "AssertionError"),
        ("```python\n# jobs.py\nfrom dibs import Dips\n```", "ImportError"),
        ("```console\n$ dibs migrate\napplied 0002 …\n```", "applied 0001 initial"),
        ("```console\n$ dibs migrate\n$ dibs status\n```", "applied 0001 initial"),
        (
            '<!-- skip: next "it takes a Redis server" -->\n```python\nraise\n```\n\n```python\nawait nothing\n```',
            "NameError",
        ),
    ],
)
def test_what_does_not_work_is_found(text: str, trouble: str, tmp_path: Path) -> None:
    """A page fails with its first error, and where a session prints something else, or more, than the page says."""
    (page := tmp_path / "page.md").write_text(text)
    ran = run(page, tmp_path, "sqlite:///dibs.db")
    assert (ran.returncode, trouble in ran.stderr) == (1, True), ran.stderr


def run(page: Path, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_page.py")), str(page)],
        cwd=folder,
        env=environment(url) | {"DATABASE_URL": url, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@contextmanager
def url_for(page: Path, folder: Path) -> Iterator[str]:
    """Give the URL of a database for a page: a file in its folder, unless its companion says `DATABASE = "postgres"`."""
    before = companion(page)
    named = re.search(r'^DATABASE = "(\w+)"', before.read_text(), re.MULTILINE) if before.exists() else None
    if named is None:
        yield "sqlite:///dibs.db"
        return
    if named[1] not in NAMES:
        pytest.skip(f"there is no {named[1]} here")
    databases = migrated(named[1], folder)
    yield next(databases).url
    next(databases, None)


@every_page
def test_commands_are_as_the_command_line_has_them(page: Path) -> None:
    """Each `dibs …` in a shell, a unit, an image or a manifest is parsed by the command itself; in text, its options are."""
    wrong = []
    for line, arguments in command_lines.on_page(page):
        try:
            command_lines.check(arguments)
        except click.UsageError as error:
            wrong.append(f"{page.name}:{line}: dibs {' '.join(arguments)}: {error.format_message()}")
    wrong += [
        f"{page.name}: dibs {name} has no {option or 'such command'}"
        for name, option in command_lines.options_in_text(page)
        if not command_lines.knows(name, option)
    ]
    assert wrong == []


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    """The tests above would see a command that is not, an option that is not, and one without its argument."""
    (page := tmp_path / "page.md").write_text(
        "```sh\nX=1 dibs wonder && dibs jobs --stats failed | cat\ndibs show\n```\n`dibs jobs --stats`"
    )
    found = list(command_lines.on_page(page))
    assert [arguments for _, arguments in found] == [["wonder"], ["jobs", "--stats", "failed"], ["show"]]
    for _, arguments in found:
        with pytest.raises(click.UsageError):
            command_lines.check(arguments)
    assert list(map(command_lines.knows, *zip(*command_lines.options_in_text(page), strict=True))) == [
        True,
        False,
    ]


@every_page
def test_blocks_say_what_they_are(page: Path) -> None:
    """Each block is in a language that is run, read, or only shown; what is not run says why, with a reason in quotes."""
    for block in blocks(page):
        directive = block.language.startswith("{")  # of the site's
        assert directive or block.language in RUN | READ | SHOWN, f"{page.name}:{block.line}: {block.language}"
    for skip in SKIP.findall(page.read_text(encoding="utf-8")):
        assert re.fullmatch(r'<!-- skip: next "[^"]{10,}" -->', skip), skip


@every_page
def test_data_can_be_read(page: Path, tmp_path: Path) -> None:
    """JSON, YAML, TOML, units and shells are well formed."""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        try:
            if block.language == "json":
                json.loads(block.text)
            elif block.language == "yaml":
                list(yaml.safe_load_all(block.text))
            elif block.language == "toml":
                tomllib.loads(block.text)
            elif block.language == "ini":
                configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True).read_string(block.text)
            elif block.language in command_lines.SHELL:
                subprocess.run(["bash", "-n", "-c", block.text], check=True, env={"PATH": os.environ["PATH"]})
        except (ValueError, yaml.YAMLError, configparser.Error, subprocess.CalledProcessError) as error:
            pytest.fail(f"{where}: {error}")
