"""Fixtures of these tests: `site` is a database with a program whose workers are real processes."""

from worker.conftest import site

__all__ = ["site"]
