"""Pages of the admin that only show rows: they are dibs' own, and are steered by orders."""

from __future__ import annotations

from typing import Any

from django.contrib import admin


class LookingAdmin(admin.ModelAdmin):
    """Nothing can be added, edited or deleted, whatever a user may do elsewhere."""

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False
