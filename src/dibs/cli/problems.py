"""What a command says when it was asked for something that cannot be."""

from __future__ import annotations

import click


class WrongUsage(click.ClickException):
    """The command was understood, and what it names is not there or does not fit."""

    exit_code = 2


class Warned(click.ClickException):
    """Nothing is wrong yet, and somebody should look."""

    exit_code = 5
