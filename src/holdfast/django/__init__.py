"""Tasks of Django on any store of Holdfast: `TASKS = {"default": {"BACKEND": "holdfast.django.HoldfastBackend", …}}`.

It needs the extra `django`: Django 6, or before it the package django-tasks. `manage.py holdfast_worker` runs the tasks
where "holdfast.django" is among INSTALLED_APPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import HoldfastBackend as HoldfastBackend

__all__ = ["HoldfastBackend"]


def __getattr__(name: str) -> Any:
    """When it is asked for: Django loads this package before its settings are there."""
    if name == "HoldfastBackend":
        from .backend import HoldfastBackend

        return HoldfastBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
