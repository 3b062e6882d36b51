"""Every row of the decision table, and what holds for all of them."""

from __future__ import annotations

import logging
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.limits import TEXT_BYTES
from holdfast.outcome import Dead, Decision, Retry, decide, describe
from holdfast.retry import Exponential, Fixed, Linear, NoRetry, RetryPolicy

FIXED = Fixed(7.0)


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - whatever is given
        return raised


@pytest.mark.parametrize(
    ("error", "attempt", "max_attempts", "policy", "retry_in", "action", "delay"),
    [
        (ValueError("x"), 1, 3, FIXED, None, "retry", 7.0),
        (ValueError("x"), 2, 3, FIXED, None, "retry", 7.0),
        (ValueError("x"), 3, 3, FIXED, None, "dead", 0.0),
        (ValueError("x"), 4, 3, FIXED, None, "dead", 0.0),
        (ValueError("x"), 1, 3, NoRetry(), None, "dead", 0.0),
        (ValueError("x"), 2, 9, Linear(2.0, 100.0), None, "retry", 4.0),
        (ValueError("x"), 1, 3, FIXED, 60.0, "retry", 60.0),
        (ValueError("x"), 1, 3, FIXED, 0.0, "retry", 0.0),
        (ValueError("x"), 3, 3, FIXED, 60.0, "dead", 0.0),
        ("plain text", 1, 3, FIXED, None, "retry", 7.0),
        (Retry(), 1, 3, FIXED, None, "retry", 7.0),
        (Retry(60), 1, 3, FIXED, None, "retry", 60.0),
        (Retry(60), 1, 3, NoRetry(), None, "retry", 60.0),
        (Retry(), 1, 3, NoRetry(), None, "dead", 0.0),
        (Retry(60), 3, 3, FIXED, None, "dead", 0.0),
        (Retry(60), 1, 3, FIXED, 5.0, "retry", 5.0),
        (Dead("why"), 1, 3, FIXED, None, "dead", 0.0),
        (Dead("why"), 1, 3, FIXED, 5.0, "dead", 0.0),
        (ValueError("x"), 1, 3, lambda attempt, error: 11, None, "retry", 11.0),
        (ValueError("x"), 1, 3, lambda attempt, error: None, None, "dead", 0.0),
        (Retry(60), 1, 3, lambda attempt, error: 11, None, "retry", 60.0),
    ],
)
def test_table(error, attempt, max_attempts, policy, retry_in, action, delay):
    decision = decide(error, attempt=attempt, max_attempts=max_attempts, policy=policy, retry_in=retry_in)
    assert (decision.action, decision.delay) == (action, delay)


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), 1e300, "soon", ZeroDivisionError("broken")])
def test_a_retry_function_that_fails_falls_back_to_the_stored_policy(answer, caplog):
    def function(attempt, error):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level(logging.ERROR):
        decision = decide(ValueError("x"), attempt=1, max_attempts=3, policy=function, fallback=FIXED)
    assert decision == Decision("retry", 7.0, "ValueError: x")
    assert "stored policy decides" in caplog.text


def test_a_retry_function_gets_an_exception_even_for_text():
    seen = []
    decide("text", attempt=2, max_attempts=3, policy=lambda attempt, error: seen.append((attempt, str(error))))
    assert seen == [(2, "text")]


def test_describe_has_type_message_and_frames():
    lines = describe(caught(ValueError("bad input"))).splitlines()
    assert lines[0] == "ValueError: bad input"
    assert lines[-1].endswith("in caught")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("as it is", "as it is"),
        (Dead("why"), "why"),
        (Dead(KeyError("gone")), "KeyError: 'gone'"),
        (Dead(404), "404"),  # type: ignore[arg-type]  # a slip that must not keep the message from dying
        (Dead(None), "None"),  # type: ignore[arg-type]  # the same
        (Retry(60), "Retry: asked to run again in 60 s"),
        (ValueError(), "ValueError"),
        ("a\0b", "a\\0b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_describe_table(error, text):
    assert describe(error) == text


def test_a_retry_with_a_cause_names_the_cause():
    try:
        raise Retry(1) from KeyError("gone")
    except Retry as error:
        assert describe(error) == "KeyError: 'gone'"


def test_a_broken_str_is_no_crash():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "str() failed: RuntimeError" in describe(Broken())


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf"), 1e300, True, "60", Decimal(60)])
def test_retry_refuses_a_bad_delay(delay):
    with pytest.raises(ConfigError, match=r"Retry\(delay\)"):
        Retry(delay)


policies: st.SearchStrategy[RetryPolicy] = st.one_of(
    st.builds(Exponential, base=st.floats(0, 10), cap=st.floats(0, 1000)),
    st.builds(Fixed, st.floats(0, 1000)),
    st.builds(Linear, st.floats(0, 100), st.floats(0, 1000)),
    st.just(NoRetry()),
)


@given(
    error=st.one_of(st.text().map(ValueError), st.text(), st.floats(0, 1e6).map(Retry), st.just(Dead("x"))),
    attempt=st.integers(1, 10**6),
    max_attempts=st.integers(1, 10**6),
    policy=policies,
)
def test_never_beyond_max_attempts_and_delays_are_sane(error, attempt, max_attempts, policy):
    decision = decide(error, attempt=attempt, max_attempts=max_attempts, policy=policy)
    if attempt >= max_attempts or isinstance(error, Dead):
        assert decision.action == "dead"
    assert 0 <= decision.delay < float("inf")


@given(st.text(min_size=TEXT_BYTES // 4, max_size=TEXT_BYTES).map(lambda text: text * 4))
def test_text_is_cut_to_its_limit(text):
    described = describe(ValueError(text))
    assert len(described.encode()) <= TEXT_BYTES
    assert "\0" not in described
