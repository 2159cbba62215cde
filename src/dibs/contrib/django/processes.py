"""What a process that runs a worker's jobs does before it imports the project's tasks."""

from __future__ import annotations

from django.db import connections


def lead_to(alias: str, name: str) -> None:
    """Have this process's connections lead where the worker's do: in a test run, to the database of the test."""
    settings = connections.settings[alias]
    if str(settings["NAME"]) != name:
        settings["NAME"] = name
