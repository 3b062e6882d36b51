"""Policies: what they may be made of. When they say the next try is, the conformance suite and test_outcome look at."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.retry import Exponential, Fixed, Linear, RetryPolicy, policy_from

PLACES = [(Fixed, "delay"), (Linear, "step"), (Linear, "cap"), (Exponential, "base"), (Exponential, "cap")]
NO_SECONDS = [-1, math.nan, math.inf, 1e300, True, "5", None, Decimal(5)]


@pytest.mark.parametrize(("policy", "field"), [*PLACES, (Exponential, "factor")])
@pytest.mark.parametrize("value", NO_SECONDS)
def test_a_number_that_cannot_be_meant_is_refused_where_it_is_written(policy: Any, field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{policy.__name__}: {field}"):
        policy(**{field: value})


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 1e300, True, None])
def test_the_same_in_yaml(value: Any) -> None:
    with pytest.raises(ConfigError, match="retry: "):
        policy_from({"policy": "fixed", "delay": value})


def test_a_factor_below_one_and_a_jitter_that_is_no_choice_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Exponential(factor=0.5)
    with pytest.raises(ConfigError, match="True or False"):
        Exponential(jitter=0.5)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("policy", [Fixed(5), Linear(5, cap=60), Exponential(cap=60), Exponential(jitter=False)])
def test_huge_attempt_numbers_do_not_overflow(policy: RetryPolicy) -> None:
    assert 0 <= (policy.after(2**31) or 0) <= 300


def test_huge_attempts_take_no_time_whatever_numbers_the_code_wrote() -> None:
    policy = Exponential(base=1, factor=2, cap=300, jitter=False)
    assert policy.after(2**31 - 1) == 300


async def test_a_policy_without_end_is_refused_and_the_queue_can_still_be_opened(tmp_path: Any) -> None:
    async with holdfast.connect(tmp_path) as broker:
        await broker.queue("jobs")
        with pytest.raises(ConfigError):
            await broker.queue("jobs", retry={"policy": "exponential", "cap": math.inf})
    async with holdfast.connect(tmp_path) as broker:
        assert (await broker.queue("jobs")).options.retry == Exponential()
