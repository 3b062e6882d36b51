"""The log's file: what is committed while it is synced is not taken for synced."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.stores.log.folder.database import PAGE_SIZE, connect
from holdfast.stores.log.folder.identity import DATABASE, LOG
from holdfast.stores.log.folder.wal import WriteAheadLog


class Met(WriteAheadLog):
    """A log to which somebody commits without waiting for the disk while it is synced; sometimes the disk refuses."""

    syncs = 0
    refuses = False

    def sync(self) -> bool:
        self.syncs += 1
        if self.syncs == 1:
            self.is_behind = True
        return super().sync() and not self.refuses


def test_a_commit_during_the_sync_is_synced_next_time(tmp_path: Path) -> None:
    connection = connect(tmp_path / DATABASE, vfs=None)
    connection.execute("CREATE TABLE some (name TEXT)")
    wal = Met(connection, os.open(tmp_path / LOG, os.O_RDWR), PAGE_SIZE)
    wal.is_behind = True
    wal.catch_up()
    assert (wal.syncs, wal.is_behind) == (1, True)
    wal.refuses = True
    wal.catch_up()
    assert (wal.syncs, wal.is_behind) == (2, True)
    wal.refuses = False
    wal.catch_up()
    wal.catch_up()
    assert (wal.syncs, wal.is_behind) == (3, False)
    wal.close()
    connection.close()
