"""Schedules and the count of rounds, at their edges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lit_dqn.schedules import ConstantEpsilon, LinearEpsilon, rounds_in


def test_epsilon_falls_linearly_and_stays_at_its_end():
    epsilon = LinearEpsilon(start=1.0, end=0.2, decay_env_steps=100)
    assert [epsilon(s) for s in (0, 25, 50, 100, 101, 10**12)] == pytest.approx(
        [1.0, 0.8, 0.6, 0.2, 0.2, 0.2]
    )


def test_without_decay_epsilon_is_at_its_end_from_the_first_step():
    epsilon = LinearEpsilon(start=1.0, end=0.1, decay_env_steps=0)
    assert [epsilon(0), epsilon(1)] == [0.1, 0.1]


def test_epsilon_may_rise_and_may_be_zero_throughout():
    rising = LinearEpsilon(start=0.1, end=0.5, decay_env_steps=4)
    assert [rising(s) for s in (0, 2, 4, 9)] == pytest.approx([0.1, 0.3, 0.5, 0.5])
    zero = LinearEpsilon(start=0.0, end=0.0, decay_env_steps=10)
    assert [zero(s) for s in (0, 5, 20)] == [0.0, 0.0, 0.0]


@given(
    start=st.floats(0, 1),
    end=st.floats(0, 1),
    decay=st.integers(0, 10**9),
    step=st.integers(0, 10**10),
)
def test_epsilon_is_always_between_its_two_ends(start, end, decay, step):
    epsilon = LinearEpsilon(start=start, end=end, decay_env_steps=decay)(step)
    assert min(start, end) - 1e-12 <= epsilon <= max(start, end) + 1e-12


def test_a_constant_epsilon_is_the_same_at_every_step():
    epsilon = ConstantEpsilon(epsilon=0.3)
    assert {epsilon(s) for s in (0, 1, 10**12)} == {0.3}


@pytest.mark.parametrize(
    ("option", "value"), [("start", 1.1), ("end", -0.1), ("start", math.nan), ("decay_env_steps", -1)]
)
def test_what_is_no_probability_or_no_duration_is_refused_by_name(option, value):
    with pytest.raises(ValueError, match=option):
        LinearEpsilon(**{option: value})
    with pytest.raises(ValueError, match="epsilon"):
        ConstantEpsilon(epsilon=1.5)


@pytest.mark.parametrize(
    ("total", "starts", "per_round", "rounds"),
    [
        (100, 0, 10, 10),
        (101, 0, 10, 11),
        (100, 40, 20, 3),
        (100, 95, 20, 1),
        (100, 100, 20, 0),
        (5, 100, 1, 0),
    ],
)
def test_a_run_has_the_first_whole_number_of_rounds_that_reaches_its_budget(total, starts, per_round, rounds):
    assert rounds_in(total, starts, per_round) == rounds


@given(total=st.integers(1, 10**9), starts=st.integers(0, 10**9), per_round=st.integers(1, 10**5))
def test_one_round_fewer_would_not_reach_the_budget(total, starts, per_round):
    rounds = rounds_in(total, starts, per_round)
    assert starts + rounds * per_round >= total
    assert rounds == 0 or starts + (rounds - 1) * per_round < total
