"""What of the suites does not run here, by a part of a test's id, and why. docs/suites.md shows it."""

from __future__ import annotations

REDIS = "It looks at the subscriptions that Celery's Redis backend makes in a Redis."
LOOKS_INSIDE = "It changes the list that Django's backend keeps in memory, and reads it again."
CAN = "It says that the immediate backend cannot do this; ours can."
LAST_FIRST = "Last in, first out: Holdfast has no such order."

LEFT_OUT: dict[str, dict[str, str]] = {
    "kombu": {},
    "celery": {
        "test_inspect.py::test_Inspect::test_scheduled": (
            "A task with an ETA waits in the store, so no worker has it in its memory, where `inspect scheduled` looks."
        ),
        "test_asyncresult_forget_cancels_subscription": REDIS,
        "test_asyncresult_get_cancels_subscription": REDIS,
        "test_chord::test_add_to_chord": (
            "Parts that a running part adds to its chord: in Celery only the Redis backend has `add_to_chord`."
        ),
        "test_chord::test_add_chord_to_chord": "The same.",
        "test_chord::test_chord_on_error": "It reads the keys that Celery's Redis backend makes for a chord.",
        "test_chord::test_error_propagates_from_chord": (
            "Celery's own fault (its issue 6437): where the task before a group fails, the group has no results. The "
            "test is marked to fail on `redis://`, and it does."
        ),
        "test_chord::test_generator": (
            "The header is a generator, and its first task must run before its last is made: in Celery only the Redis "
            "backend counts parts so, and others, as here, make all before the first is sent."
        ),
        "test_chord::test_reapplying_frozen_chord_dispatches_body_again": (
            "The chord is sent twice with the same ids. Here its parts count once, so that its body runs once."
        ),
    },
    "django": {
        "DummyBackendTestCase::test_refresh_result": LOOKS_INSIDE,
        "DummyBackendTestCase::test_refresh_result_async": LOOKS_INSIDE,
        "test_cannot_get_result": CAN,
        "test_cannot_refresh_result": CAN,
        "test_cannot_pass_run_after": CAN,
        "test_throws_keyboard_interrupt": (
            "The immediate backend runs a task in the caller's thread, which can be interrupted; here a worker does."
        ),
    },
    "huey": {},
    "persist-queue": {
        "FILOSQLite3AckQueueTest::test_open_close_1000": LAST_FIRST,
        "FILOSQLite3AckQueueTest::test_get_next_in_order": LAST_FIRST,
    },
}
