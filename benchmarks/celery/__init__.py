"""Celery on a folder beside Celery on Redis: the same app, sent and worked by turns."""
