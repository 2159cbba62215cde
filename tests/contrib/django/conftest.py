"""The project has tests of its own, which its own `manage.py test` runs."""

from __future__ import annotations

collect_ignore = ["project"]
