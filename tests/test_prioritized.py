"""Prioritised replay against the plain lists of `test_replay` and a scalar loop over priorities."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lit_dqn.errors import RunError
from lit_dqn.replay.prioritized import PrioritizedReplay
from test_replay import Recorder, copy_rows, sampler

EPS, ALPHA = 0.25, 0.5


def prioritized(recorder, **options):
    """A prioritised replay that the recorder writes to."""
    replay = sampler(
        PrioritizedReplay, recorder, **({"batch_size": 16, "alpha": ALPHA, "eps": EPS} | options)
    )
    recorder.buffer = replay.buffer
    return replay


def priorities(replay):
    """{index: priority} of what can be drawn."""
    replay.can_sample()
    slots = replay.tree.leaves.nonzero().flatten()
    pairs = zip(replay._index_of(slots).tolist(), replay.tree.leaves[slots].tolist(), strict=True)
    return dict(pairs)


class NaivePriorities:
    """A dict of priorities, looked after row by row."""

    def __init__(self, recorder):
        self.recorder, self.known, self.highest = recorder, {}, 1.0

    def take(self):
        eligible = {row * self.recorder.num_envs + env for row, env in self.recorder.expected()}
        self.known = {index: self.known.get(index, self.highest) for index in eligible}

    def update(self, index, priority):
        for i, p in zip(index.flatten().tolist(), priority.flatten().tolist(), strict=True):
            value = (p + EPS) ** ALPHA
            self.highest = max(self.highest, value)
            if i in self.known and i // self.recorder.num_envs >= self.recorder.buffer.oldest:
                self.known[i] = value


OPERATIONS = st.lists(
    st.sampled_from(["step"] * 10 + ["cut", "learn", "learn", "late", "reload"]), max_size=80
)


@given(
    operations=OPERATIONS,
    n_step=st.sampled_from([1, 2, 3, 5]),
    num_envs=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    extra=st.integers(0, 9),
    stack=st.integers(1, 4),
)
def test_exactly_the_eligible_starts_can_be_drawn_at_the_priorities_they_were_given(
    operations, n_step, num_envs, lengths, extra, stack
):
    recorder = Recorder(n_step + stack + 2 + extra, num_envs, n_step, lengths=lengths, stack=stack)
    replay, naive = prioritized(recorder), NaivePriorities(recorder)
    generator = torch.Generator().manual_seed(0)
    held = None
    for operation in operations:
        if operation == "step":
            recorder.step()
        elif operation == "cut":
            recorder.cut()
        elif operation == "reload":
            before, replay = replay, prioritized(recorder, seed=9)
            copy_rows(before.buffer, replay.buffer)
            replay.load_state_dict(before.state_dict())
            recorder.first = max(recorder.first, before.buffer.oldest)
            naive.take()
        elif replay.can_sample():
            naive.take()
            index = replay.sample(2).index
            if operation == "late":
                held, index = index, held  # these come back when some of them are overwritten
            if index is not None:
                priority = torch.rand(index.shape, generator=generator) * 5
                replay.update_priorities(index, priority)
                naive.update(index, priority)
        else:
            naive.take()
    naive.take()
    assert priorities(replay) == pytest.approx(naive.known)
    assert float(replay.highest) == pytest.approx(naive.highest)


def learned(num_rows=60, **options):
    """A replay whose starts have priorities from 0.5 to 4.5, as they were given."""
    recorder = Recorder(40, 2, lengths=(5, 3, 4))
    replay = prioritized(recorder, **options)
    for _ in range(num_rows):
        recorder.step()
    known = list(priorities(replay))
    index = torch.tensor(known).unsqueeze(0)
    given_priority = 0.5 + 4.0 * torch.arange(len(known), dtype=torch.float32).unsqueeze(0) / len(known)
    replay.update_priorities(index, given_priority)
    return replay, dict(zip(known, given_priority[0].tolist(), strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_starts_are_drawn_in_proportion_to_their_priorities_to_the_power_of_alpha(alpha):
    replay, given_priority = learned(alpha=alpha, batch_size=50)
    drawn = Counter(replay.sample(800).index.flatten().tolist())
    share = {i: (p + EPS) ** alpha for i, p in given_priority.items()}
    scale = 40_000 / sum(share.values())
    chi_square = sum((drawn[i] - s * scale) ** 2 / (s * scale) for i, s in share.items())
    freedom = len(share) - 1
    assert set(drawn) == set(share)
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_weights_are_the_inverse_shares_to_the_power_of_beta_over_the_largest_of_the_minibatch():
    replay, given_priority = learned(batch_size=12, beta=0.4, beta_end_env_steps=100)
    for env_step, beta in ((0, 0.4), (50, 0.7), (100, 1.0), (10**9, 1.0)):
        batch = replay.sample(3, env_step)
        assert batch.weight.dtype == torch.float32
        for index, weight in zip(batch.index, batch.weight, strict=True):
            raw = np.array([(given_priority[i] + EPS) ** ALPHA for i in index.tolist()]) ** -beta
            assert weight.tolist() == pytest.approx((raw / raw.max()).tolist(), rel=1e-5)
        assert replay.curves(env_step)["buffer/beta"] == pytest.approx(beta)


def test_a_minibatch_is_stratified():
    replay, _ = learned(batch_size=10)
    cumulative = replay.tree.leaves.cumsum(0) / replay.tree.total
    for index in replay.sample(20).index:
        ends = cumulative[index % replay.buffer.size]
        starts = ends - replay.tree[index % replay.buffer.size] / replay.tree.total
        tenths = torch.arange(10) / 10
        assert ((ends >= tenths - 1e-9) & (starts <= tenths + 0.1 + 1e-9)).all()


def test_a_new_start_enters_at_the_highest_priority_seen():
    replay, given_priority = learned()
    highest = (max(given_priority.values()) + EPS) ** ALPHA
    assert float(replay.highest) == pytest.approx(highest)
    no = np.zeros(2, dtype=bool)
    for _ in range(2):
        replay.add(np.zeros((2, 3)), no, no, no, no, ~no)
    newest = (replay.buffer.rows_added - 2) * 2
    assert priorities(replay)[newest] == pytest.approx(highest)
    assert newest + 2 not in priorities(replay)  # it has no successor yet


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_priority_that_is_no_number_is_refused_by_name_and_changes_nothing(value):
    replay, _ = learned()
    before = replay.tree.leaves.clone()
    index = replay.sample(1).index
    with pytest.raises(RunError, match="a priority is NaN or infinite"):
        replay.update_priorities(index, torch.full(index.shape, value))
    assert torch.equal(replay.tree.leaves, before)


@pytest.mark.parametrize(("option", "value"), [("alpha", 1.5), ("beta", -0.1), ("eps", 0.0)])
def test_options_out_of_range_are_refused_by_name(option, value):
    with pytest.raises(ValueError, match=option):
        prioritized(Recorder(10), **{option: value})


def test_a_loaded_replay_draws_what_the_saved_one_draws_next():
    saved, _ = learned()
    recorder = Recorder(40, 2)
    loaded = prioritized(recorder, seed=77)
    copy_rows(saved.buffer, loaded.buffer)
    loaded.load_state_dict(saved.state_dict())
    one, other = saved.sample(3, 10), loaded.sample(3, 10)
    assert torch.equal(one.index, other.index)
    assert torch.equal(one.weight, other.weight)
