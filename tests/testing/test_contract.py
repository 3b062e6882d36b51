"""A suite that never fails proves nothing: each broken toy fails the test of the rule it breaks."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker import Broker
from holdfast.errors import HoldfastError
from holdfast.testing import contract
from holdfast.testing.clock import ManualClock
from tests import broken_toys as toys
from tests.toy_store import ToyStore

KEPT = {"kept": True, "keep": False}
COMPLETED = {"end": "complete"}

# The broken rule → the test that must notice, and its parameters.
RULES: list[tuple[type[ToyStore], type[contract.StoreContract], str, dict[str, object]]] = [
    (toys.NoTokenCheck, contract.Leases, "old_holder_changes_nothing_and_the_new_one_succeeds", {"verb": "complete"}),
    (toys.NoTokenCheck, contract.Seam, "settle_with_a_forged_token_is_lost_and_changes_nothing", {"action": "retry"}),
    (toys.AttemptCountedAtFailure, contract.Leases, "attempts_are_counted_at_the_claim_so_crashes_run_out", {}),
    (toys.ClaimGivesTooMany, contract.Leases, "claim_never_gives_more_than_asked", {}),
    (toys.ClaimGivesTooMany, contract.Seam, "claim_gives_at_most_the_limit", {}),
    (toys.HeldMessagesVisible, contract.Leases, "held_message_is_invisible", {}),
    (toys.HolderNotNamed, contract.Leases, "plain_dequeue_holds_under_the_name_of_its_process", {}),
    (toys.HolderNotNamed, contract.Seam, "who_claims_a_message_holds_it_in_every_view", {}),
    (toys.HeldMessagesVisible, contract.Leases, "two_claimers_never_hold_one_message", {}),
    (toys.PriorityIgnored, contract.Basics, "higher_priority_comes_first", {}),
    (toys.LastInFirstOut, contract.Basics, "first_in_first_out_within_a_priority", {}),
    (toys.RetryLosesItsPlace, contract.Retries, "retried_message_keeps_its_place", {}),
    (toys.DelayIgnored, contract.DelayAndDedup, "delayed_message_is_invisible_before_and_visible_after", {}),
    (toys.DedupIgnored, contract.DelayAndDedup, "same_dedup_key_within_the_window_is_one_message", {}),
    (toys.DedupForever, contract.DelayAndDedup, "dedup_key_is_forgotten_after_the_window", {}),
    (toys.ReleaseCostsAnAttempt, contract.Leases, "release_does_not_cost_an_attempt", {}),
    (toys.ExpiredStaysHeld, contract.Leases, "expired_lease_is_redelivered_with_the_next_attempt", {}),
    (toys.NoRetryForgottenAtExpiry, contract.Leases, "expired_lease_without_retries_is_dead", {}),
    (toys.NeverAlone, contract.Leases, "last_attempt_after_expired_leases_comes_alone", {}),
    (toys.ExtendShortens, contract.Leases, "extend_never_shortens", {}),
    (toys.AnybodyExtends, contract.Leases, "extend_with_an_old_token_is_refused", {}),
    (toys.RepeatIsLost, contract.Leases, "repeating_a_settle_is_success_and_changes_nothing", {}),
    (toys.RepeatCountsTwice, contract.Leases, "repeating_a_settle_is_success_and_changes_nothing", {}),
    (toys.CancelsHeldMessages, contract.Basics, "cancel_leaves_held_and_ended_messages_alone", {}),
    (toys.PurgeKillsHeldMessages, contract.Whole, "purge_drops_what_waits_and_nothing_else", {}),
    (toys.PausedQueueGives, contract.Whole, "paused_queue_takes_messages_and_gives_none", {}),
    (toys.ReplayDoubles, contract.Archive, "second_replay_of_the_archive_adds_nothing", {}),
    (toys.ReplayKeepsAttempts, contract.DeadLetters, "replay_of_one_brings_it_back_fresh", {}),
    (toys.FirstClaimCounts, contract.Archive, "record_says_when_the_attempt_that_ended_it_was_claimed", COMPLETED),
    (toys.DeadLettersForgetHeaders, contract.DeadLetters, "dead_record_keeps_everything", {}),
    (toys.CleanupTakesDeadLetters, contract.DeadLetters, "dead_letters_survive_cleanup_purge_and_retention", {}),
    (toys.KeepsWhatShouldGo, contract.Archive, "message_that_is_not_kept_leaves_only_a_count", KEPT),
    (toys.HalfOfABatch, contract.Batches, "ids_of_a_batch_are_in_input_order", {}),
    (toys.ForgetsOnClose, contract.Reopening, "lease_survives_and_its_receipt_still_settles", {}),
    (toys.CountsWrong, contract.Whole, "stats_follow_the_messages", {}),
]
NAMES = [f"{broken.__name__}-{test}" for broken, _, test, _ in RULES]


async def run(
    store_class: type[ToyStore], topic: type[contract.StoreContract], test: str, how: dict[str, object]
) -> None:
    """One test of the suite on a fresh store, called as pytest would."""
    clock = ManualClock()
    store = store_class(clock)

    class Case(topic):  # type: ignore[misc, valid-type]  # the topic is a value here
        patience = 0.1

        async def open_broker(self) -> Broker:
            return Broker(store)

        async def advance(self, seconds: float) -> None:
            await asyncio.sleep(0)
            clock.advance(seconds + 0.01)

    case = Case()
    async with case.opened():
        await getattr(case, f"test_{test}")(**how)


@pytest.mark.parametrize(("broken", "topic", "test", "how"), RULES, ids=NAMES)
async def test_broken_rule_is_noticed(
    broken: type[ToyStore], topic: type[contract.StoreContract], test: str, how: dict[str, object]
) -> None:
    await run(ToyStore, topic, test, how)
    with pytest.raises((AssertionError, HoldfastError, pytest.fail.Exception)):
        await run(broken, topic, test, how)


def test_every_broken_toy_is_used() -> None:
    found = {value for value in vars(toys).values() if isinstance(value, type) and issubclass(value, ToyStore)}
    assert found - {ToyStore} == {broken for broken, *_ in RULES}
