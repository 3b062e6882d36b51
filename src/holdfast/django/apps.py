"""The application, for its command `holdfast_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"
