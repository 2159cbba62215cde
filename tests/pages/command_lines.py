"""Finds the `dibs` commands on a page and asks the command line itself whether they are well formed. None is run."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from dibs.cli.commands import COMMANDS, commands
from dibs.contrib.django.management.commands.dibs import _with_app as with_djangos_app
from pages.reading import blocks

SHELL = {"sh", "shell", "bash"}

#: What may stand before the name of a program.
BEFORE = re.compile(r"^(exec|sudo|env|time|nohup|[A-Z_]+=.*)$")
#: How dibs is started; Django knows the app itself.
STARTS = (["dibs"], ["python", "-m", "dibs"])
DJANGOS_STARTS = (["python", "manage.py", "dibs"], ["manage.py", "dibs"])


def on_page(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the arguments of each dibs command on a page: in shells, units, images and manifests."""
    for block in blocks(page):
        for words in _commands(block.language, block.text):
            if (arguments := after_dibs(words)) is not None:
                yield block.line, arguments


def after_dibs(words: list[str]) -> list[str] | None:
    """Return what is given to dibs, if this is a command that starts it."""
    while words and BEFORE.match(words[0]):
        words = words[1:]
    if not words:
        return None
    words = [words[0].rsplit("/", 1)[-1], *words[1:]]
    for start in STARTS:
        if words[: len(start)] == start:
            return words[len(start) :]
    for start in DJANGOS_STARTS:
        if words[: len(start)] == start:
            return with_djangos_app(words[len(start) :])
    return None


def _commands(language: str, text: str) -> Iterator[list[str]]:
    if language in SHELL:
        yield from _in_shell(text)
    elif language == "console":
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
        yield from _in_shell("\n".join(lines))
    elif language == "dockerfile":
        for said in re.findall(r"(?:^|\s)(?:CMD|ENTRYPOINT) (.*)$", text, re.MULTILINE):
            yield json.loads(said) if said.startswith("[") else shlex.split(said)
    elif language == "ini":
        for key, value in _ini(text):
            if key.startswith("exec"):
                yield shlex.split(value.lstrip("-@:+!"))
    elif language == "yaml":
        for document in yaml.safe_load_all(text):
            yield from _in_manifest(document)


def _in_shell(text: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", "\n; "), posix=True, punctuation_chars=";|&()<>")
    lexer.wordchars += ":@%,+$={}[]…"
    words: list[str] = []
    for word in lexer:
        if re.fullmatch(r"[;|&()<>]+", word):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def _ini(text: str) -> Iterator[tuple[str, str]]:
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    parser.read_string(text)
    for section in parser.sections():
        yield from parser.items(section)


def _in_manifest(value: Any) -> Iterator[list[str]]:
    """Yield the lists of words in a manifest, with those of `args` put after their `command`."""
    if isinstance(value, dict):
        if isinstance(value.get("command"), list):
            yield [str(word) for word in [*value["command"], *(value.get("args") or [])]]
        elif isinstance(value.get("command"), str):
            yield shlex.split(value["command"])
        elif isinstance(value.get("args"), list):
            words = [str(word) for word in value["args"]]
            yield ["dibs", *words] if words[:1] and words[0] in COMMANDS else words  # after the image's entry point
        for each in value.values():
            yield from _in_manifest(each)
    elif isinstance(value, list):
        for each in value:
            yield from _in_manifest(each)


def check(arguments: list[str]) -> None:
    """Raise click's UsageError unless dibs understands these arguments."""
    try:
        context = commands.make_context("dibs", list(arguments))
        name, command, rest = commands.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:  # --help, --version
        pass


def options_in_text(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the command and each option of every `dibs …` that stands in a sentence or a table."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for said in re.findall(r"`(dibs [^`]*)`", text):
        words = re.findall(r"[^\s\[\]|=]+", said)[1:]
        name = next((word for word in words if not word.startswith("-")), "")
        yield name, ""
        yield from ((name, word) for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word))


def knows(name: str, option: str) -> bool:
    """Is there such a command, and does it (or dibs itself) have the option?"""
    if not name:
        return any(option in parameter.opts for parameter in commands.params) or option in ("", "--help")
    if name not in COMMANDS:
        return name.isupper() or name == "…"  # a placeholder
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    known = {opt for parameter in (*command.params, *commands.params) for opt in parameter.opts}
    return option in known or option in ("", "--help")
