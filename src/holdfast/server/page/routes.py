"""All pages of a store."""

from __future__ import annotations

from . import audits, bulk, doctor, editing, letters, messages, overview, pipeline, queues, schedules, workers

ROUTES = [
    *overview.ROUTES,
    *queues.ROUTES,
    *messages.ROUTES,
    *editing.ROUTES,
    *bulk.ROUTES,
    *letters.ROUTES,
    *schedules.ROUTES,
    *workers.ROUTES,
    *pipeline.ROUTES,
    *doctor.ROUTES,
    *audits.ROUTES,
]
