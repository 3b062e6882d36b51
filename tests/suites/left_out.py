"""What of the suites does not run here, by a part of a test's id, and why. docs/suites.md shows it."""

from __future__ import annotations

LEFT_OUT: dict[str, dict[str, str]] = {
    "kombu": {},
    "celery": {},
    "django": {},
    "huey": {},
    "persist-queue": {},
}
