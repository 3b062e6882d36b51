"""The bucket: objects that are created once, swapped by tag, deleted, listed; and its clock."""

from __future__ import annotations

from typing import Any, NamedTuple

from .ghost import Ghost
from .keys import Key, Log
from .rules import PAGE

# Requests are tuples: ("get", key) ("create", key, data) ("swap", key, tag, data, why) ("delete", key)
# ("list", log, folder, priority, after). Replies are (status, value).
Request = tuple[Any, ...]
Reply = tuple[str, Any]
ERROR: Reply = ("error", None)


class Object(NamedTuple):
    data: Any
    created_at: int
    tag: int


class Bucket:
    def __init__(self, ghost: Ghost) -> None:
        self.now = 100
        self.ghost = ghost
        ghost.bucket = self
        self.objects: dict[Key, Object] = {}
        self.folders: dict[tuple[Log, str], dict[Key, None]] = {}
        self._tags = 0

    def carry_out(self, request: Request) -> Reply:
        verb = request[0]
        if verb == "get":
            found = self.objects.get(request[1])
            return ("ok", found) if found else ("missing", None)
        if verb == "list":
            return "ok", self._list(*request[1:])
        if verb == "create":
            return self._create(request[1], request[2])
        if verb == "swap":
            return self._swap(*request[1:])
        return self._delete(request[1])

    def _create(self, key: Key, data: Any) -> Reply:
        self.ghost.wrote(key, data)
        if key in self.objects:
            return "exists", None
        self._put(key, data)
        self.ghost.created(key, data)
        return "ok", None

    def _swap(self, key: Key, tag: int, data: Any, why: Any) -> Reply:
        found = self.objects.get(key)
        if found is None or found.tag != tag:
            return "lost", None
        self._put(key, data)
        if key.folder == "head":
            self.ghost.swapped(key.log, found.data, data, why)
        elif key.folder == "config":
            self.ghost.configured(found.data, data)
        return "ok", None

    def _put(self, key: Key, data: Any) -> None:
        self._tags += 1
        self.objects[key] = Object(data, self.now, self._tags)
        self.folders.setdefault((key.log, key.folder), {})[key] = None

    def _delete(self, key: Key) -> Reply:
        if key in self.objects:
            self.ghost.deleted(key)
            del self.objects[key]
            del self.folders[key.log, key.folder][key]
        return "ok", None

    def _list(self, log: Log, folder: str, priority: int | None, after: Any) -> list[tuple[Key, int]]:
        """The first page, in order of key, each with its `created_at`."""
        keys = [key for key in self.folders.get((log, folder), ()) if priority is None or key.priority == priority]
        if after is not None:
            keys = [key for key in keys if key.order > after]
        keys.sort(key=lambda key: (key.due, key.birth, key.unique))
        return [(key, self.objects[key].created_at) for key in keys[:PAGE]]

    def rewrite(self, key: Key) -> None:
        """The same bytes again: copied, restored, or touched in place. Its date and tag are new."""
        self._put(key, self.objects[key].data)

    def head(self, log: Log) -> dict[str, Any] | None:
        found = self.objects.get(Key(log, "head"))
        return found.data if found else None
