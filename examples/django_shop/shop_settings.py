"""The least that a project needs: an application, and where its tasks are kept."""

import os
from pathlib import Path

import django

HERE = Path(__file__).parent
SECRET_KEY = "only for the example"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", HERE / "shop.db")}}
INSTALLED_APPS = ["holdfast.django", *([] if django.VERSION >= (6,) else ["django_tasks"])]
TASKS = {
    "default": {
        "BACKEND": "holdfast.django.HoldfastBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"URL": os.environ.get("SHOP_STORE", f"file://{HERE / 'jobs'}"), "ENQUEUE": "on_commit"},
    }
}
