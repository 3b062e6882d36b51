"""The rules of the protocol, each one a switch, so that it can be shown what happens without it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

R = 12  # window in which a producer may still repeat a write
E = 2  # a client's clock differs from the server's by at most this
LEASE = 14
SESSION = 40  # age at which a session is dropped from the head
CACHE = 6  # how long a client may use what it knows of a queue's config
PAGE = 5  # keys a list answers
SPILL = 6  # a retry further away than this leaves in the next flush


@dataclass(frozen=True)
class Rules:
    """All on: the protocol. One off: a negative control."""

    P1_key_once: bool = True  # off: each try has a new key
    P2_exists_is_proof: bool = True  # off: "exists" is answered as refused
    P3_late_answer_is_read: bool = True  # off: acknowledged whatever the date
    P4_error_is_unknown: bool = True  # off: an error is answered as "not stored"
    C1_head_begun_first: bool = True  # off: a commit that finds no head begins one
    C2_sessions: bool = True  # off: a commit without an answer is applied again
    C2_more_than_last_nonce: bool = True  # off: only the head's last write id is looked at
    C2_same_head: bool = True  # off: the head is read once more after it was looked through for earlier attempts
    C2_dropped_session: bool = True  # off: a session that may be dropped already counts as not applied
    C3_lease_margin: bool = True  # off: a lease is over by anybody's clock, without a margin
    A1_head_before_list: bool = True  # off: `forgets` is read after the list
    A2_from_the_start: bool = True  # off: lists go on after the last absorbed block
    A3_fence: bool = True  # off: blocks created long after their birth are absorbed
    A3_set_aside: bool = True  # off: late blocks are deleted
    A3_copy_passes: bool = True  # off: blocks of a copied bucket are late
    A3_epoch: bool = True  # off: a copy has no epoch of its own: it is as old as whoever has opened it says
    A3_sleeper_after_copy: bool = True  # off: what was born before the copy passes whenever it is written
    A3_sleeping_flusher: bool = True  # off: blocks of a flush are never late
    A3_retry_after_set_aside: bool = True  # off: what is brought back is not looked for first
    A3_bury_before_delete: bool = True  # off: a block that is set aside is deleted at once
    A4_purged_at: bool = True  # off: blocks older than a purge are absorbed
    A4_only_strangers: bool = True  # off: A4 deletes blocks that are in the head too
    A5_in_place: bool = True  # off: due blocks are moved to the inbox
    A6_forgets: bool = True  # off: an absorb from an old list is applied again
    A6_known: bool = True  # off: a block in head or graveyard is absorbed again
    F1_name_frozen: bool = True  # off: whoever writes the file names it
    F2_rows_from_head: bool = True  # off: rows from memory of one's own freeze
    F3_missing_abandons: bool = True  # off: a missing payload is written as null
    F4_until_confirmed: bool = True  # off: a write without an answer counts as done
    F4_in_window: bool = True  # off: a flush's block counts as written whatever its date
    F4_by_fate: bool = True  # off: whether it was in time is judged by its date alone, in a copy too
    F4_renewed: bool = True  # off: a block that came too late is never given a new birth
    F4_block_named_at_freeze: bool = True  # off: who writes a dead-letter or retry block names it
    F4_absorbed_after_drop: bool = True  # off: a flush's block is absorbed while its rows are still frozen
    F5_drop_if_same: bool = True  # off: a drop drops whatever is frozen
    F6_buried_at_drop: bool = True  # off: a block is buried when its last message is settled
    G1_graveyard: bool = True  # off: a finished block is deleted and not remembered
    G2_delete_after_window: bool = True  # off: a delete before birth + R is enough to forget
    G2_delete_confirmed: bool = True  # off: a delete without an answer is enough to forget
    G2_server_margin: bool = True  # off: "after birth + R" by a client's own clock
    G3_nothing_else_deletes: bool = True  # off: a block is deleted by whoever computed its drop, before the swap
    purge_one_swap: bool = True  # off: purge lists and deletes
    purge_spilled: bool = True  # off: retries that are frozen during a purge come back
    purge_server_time: bool = True  # off: purged_at by a client's own clock
    manifest: bool = True  # off: the blocks of one call are created one by one
    manifest_swept_by_head: bool = True  # off: parts without a manifest in the inbox are deleted
    dedup_holds_bytes: bool = True  # off: the dedup object names an id, the block comes after
    dedup_object: bool = True  # off: no dedup object is created, only looked for
    dedup_confirmed: bool = True  # off: an old dedup object is believed, or not, without proof
    shard_in_key: bool = True  # off: every shard lists every block
    shard_per_producer: bool = True  # off: a producer changes shards
    delete_incarnation: bool = True  # off: a queue made anew has the keys of the old one
    delete_waits: bool = True  # off: delete answers before producers have read the closing mark
    delete_window: bool = True  # off: a closed queue is removed at once, its head first
    replay_once: bool = True  # off: each replay makes a block of its own

    change_unlisted: bool = True  # off: a changed message is written into the inbox, where others may absorb it
    change_only_waiting: bool = True  # off: what somebody holds is changed too

    S1_one_swap: bool = True  # off: a slot's block is admitted by anybody, and the mark moved after
    S2_mark_compared: bool = True  # off: a late writer moves the mark whatever it is by then

    def without(self, name: str) -> Rules:
        return replace(self, **{name: False})


NAMES = tuple(field.name for field in fields(Rules))
