"""The log as one JSON object per line, for programs that collect logs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

PLAIN = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """`time level logger message`, and `error` with the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_text or record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]  # one of both
        return msgspec.json.encode(line).decode()


def formatter(format: str) -> logging.Formatter:
    """Of `text` or `json`."""
    return JsonLines() if format == "json" else logging.Formatter(PLAIN)
