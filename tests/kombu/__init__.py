"""Celery and kombu on stores of Holdfast."""
