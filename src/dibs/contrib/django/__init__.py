"""dibs in a Django project: put "dibs.contrib.django" into INSTALLED_APPS and import `app`.

from dibs.contrib.django import app

@app.task
def send_receipt(order_id: int) -> None: ...

The app is made of `settings.DIBS` and `settings.DATABASES` when it is first asked for; nothing is opened then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.contrib.django.project import ProjectDibs

    app: ProjectDibs

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name == "app":
        from dibs.contrib.django.project import project_app

        return project_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
