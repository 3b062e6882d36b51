"""An executable model of the log engine's protocol on a bucket, independent of `src/`.

Read it in this order:

    rules.py       the rules, each one a switch; the constants R (repeat window), E (clock error), ...
    keys.py        what a key says
    bucket.py      create, get, swap, delete, list; the server's time
    head.py        the head as a pure function: apply(head, intents) -> head, results
    committer.py   C1-C4: read, apply, swap; what became of an attempt whose reply was lost
    producer.py    P1-P4, calls of several blocks (manifest), dedup keys, replay
    consumer.py    A1-A6: list and absorb; claim, settle
    flusher.py     F1-F6: freeze, write, drop; dead letters and spilled retries
    fate.py        A3, A4: what becomes of a listed block, by its birth and its date
    quarantine.py  A3: late blocks are set aside and brought back; the identity of a bucket that was copied
    upkeep.py      G1-G3 graveyard, purge, sweeping, delete of a queue
    ghost.py       the invariants: it sees every applied write and every answer
    world.py       clients, faults, time; one schedule from start to drain
    search.py      random schedules, and all schedules with at most k deviations
    controls.py    for each rule where to look for the schedules that need it

Clients are generators. Each `yield` is one request to the bucket (or a wait) and a place where the schedule may let it
fail, lose its reply, apply it later, crash the client or let it sleep.
"""
