"""The replay against plain lists of transitions: every start that can be read, not a sample of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_dqn.errors import UserError
from lit_dqn.replay.buffer import ReplayBuffer
from lit_dqn.replay.uniform import UniformReplay
from trap_envs import CountingEnv, Transition, nstep_oracle, stack_oracle

GAMMA = 0.5  # powers of it are exact in float32


class Recorder:
    """Counting envs driven as NEXT_STEP autoreset does: rows into a buffer, transitions into plain lists."""

    def __init__(
        self,
        length,
        num_envs=1,
        n_step=1,
        endings=("term", "trunc", "both"),
        lengths=(5, 3, 1, 4),
        stack=1,
        padding="zero",
    ):
        self.num_envs, self.n_step, self.stack, self.padding = num_envs, n_step, stack, padding
        self.buffer = self.new_buffer(length)
        self.envs = [
            CountingEnv(lengths=lengths, endings=endings, first_episode=7 * i) for i in range(num_envs)
        ]
        self.random = np.random.default_rng(0)
        self.traces = [[] for _ in self.envs]  # transitions of each env ...
        self.rows = [[] for _ in self.envs]  # ... and their row numbers
        self.row = self.first = 0
        self.restart()

    def new_buffer(self, length):
        capacity = length * self.num_envs
        return ReplayBuffer((3,), torch.float32, self.num_envs, capacity=capacity, **self.options())

    def options(self):
        return {
            "n_step": self.n_step,
            "gamma": GAMMA,
            "frame_stack": self.stack,
            "stack_padding": self.padding,
        }

    def restart(self):
        self.obs = np.stack([env.reset()[0] for env in self.envs])
        self.waiting = np.zeros(self.num_envs, dtype=bool)

    def step(self):
        actions = self.random.integers(3, size=self.num_envs)
        successors, rewards, terminations, truncations = [], [], [], []
        for i, env in enumerate(self.envs):
            if self.waiting[i]:
                successor, reward, terminated, truncated = env.reset()[0], 0.0, False, False
            else:
                successor, reward, terminated, truncated, _ = env.step(actions[i])
                made = Transition(self.obs[i].copy(), actions[i], reward, successor, terminated, truncated)
                self.traces[i].append(made)
                self.rows[i].append(self.row)
            successors.append(successor)
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
        ended = np.array(terminations) | np.array(truncations)
        self.buffer.add(self.obs, actions, np.array(rewards), np.array(terminations), ended, ~self.waiting)
        self.obs, self.waiting = np.stack(successors), ended
        self.row += 1

    def cut(self):
        self.buffer.cut(self.obs)
        for trace, rows in zip(self.traces, self.rows, strict=True):
            if rows and rows[-1] == self.row - 1:
                trace[-1].truncated = True
        self.row += 1
        self.restart()

    def reload(self, length):
        """Save, and load into a new buffer of that length."""
        before = self.buffer
        self.first = self.row - min(len(before), length)
        self.buffer = self.new_buffer(length)
        copy_rows(before, self.buffer)

    def expected(self):
        """{(row, env): (obs, action, reward, discount, next_obs)} of every start that can be read."""
        oldest, newest = max(self.first, self.row - self.buffer.length), self.row - 1
        found = {}
        for env, (trace, rows) in enumerate(zip(self.traces, self.rows, strict=True)):
            for i, row in enumerate(rows):
                window = nstep_oracle(trace, i, self.n_step, GAMMA)
                if window is None or row + window[3] > newest:
                    continue
                # A stack is stored down to its first frame, or to the row before its episode.
                earlier = int(trace[i].obs[1])
                lowest = row - min(self.stack - 1, earlier + 1)
                if row < oldest or (oldest > 0 and lowest < oldest):
                    continue
                reward, discount, next_obs, steps = window
                obs = np.concatenate(stack_oracle(trace, i, self.stack, self.padding))
                successor = self.stack_after(trace[: i + steps], next_obs)
                found[row, env] = (*obs.tolist(), trace[i].action, reward, discount, *successor.tolist())
        return found

    def stack_after(self, trace, next_obs):
        """The stack of the true successor of a trace's last transition, in the same episode."""
        last = replace(trace[-1], terminated=False, truncated=False)
        trace = [*trace[:-1], last, Transition(next_obs, 0, 0.0, next_obs, False, False)]
        return np.concatenate(stack_oracle(trace, len(trace) - 1, self.stack, self.padding))

    def read(self):
        """The same from the buffer."""
        every = torch.arange(*self.buffer.candidates())
        every = every[self.buffer.eligible(every)]
        read = self.buffer.transitions(every)
        assert read["reward"].dtype == read["discount"].dtype == read["obs"].dtype == torch.float32
        assert read["action"].dtype == torch.int64
        widths = (3 * self.stack, 1, 1, 1, 3 * self.stack)
        columns = [read["obs"], read["action"], read["reward"], read["discount"], read["next_obs"]]
        flat = torch.cat(
            [c.double().reshape(len(every), width) for c, width in zip(columns, widths, strict=True)],
            dim=1,
        ).tolist()
        keys = zip((every // self.num_envs).tolist(), (every % self.num_envs).tolist(), strict=True)
        return {key: tuple(values) for key, values in zip(keys, flat, strict=True)}


def copy_rows(source, target):
    """Save, and load into another buffer."""
    target.import_rows(source.oldest, source.export_rows(source.oldest))
    target.forget(source.oldest)


def test_a_truncated_and_a_terminated_two_step_episode_read_back_as_written_by_hand():
    buffer = ReplayBuffer((1,), torch.float32, 1, capacity=8, n_step=2, gamma=0.5)

    def row(obs, action, reward, terminated=False, ended=False, valid=True):
        flags = [np.array([flag]) for flag in (terminated, ended, valid)]
        buffer.add(np.array([[obs]]), np.array([action]), np.array([reward]), *flags)

    row(0.0, 1, 4.0)
    row(1.0, 2, 6.0, ended=True)  # truncated
    row(2.0, 0, 0.0, valid=False)  # its true last observation
    row(10.0, 1, 1.0)
    row(11.0, 0, 3.0, terminated=True, ended=True)
    row(12.0, 0, 0.0, valid=False)
    every = torch.arange(*buffer.candidates())
    assert buffer.eligible(every).tolist() == [True, True, False, True, True]
    read = buffer.transitions(torch.tensor([0, 1, 3, 4]))
    assert read["reward"].tolist() == [4.0 + 0.5 * 6.0, 6.0, 1.0 + 0.5 * 3.0, 3.0]
    assert read["discount"].tolist() == [0.25, 0.5, 0.0, 0.0]
    assert read["next_obs"].flatten().tolist() == [2.0, 2.0, 12.0, 12.0]
    assert read["action"].tolist() == [1, 2, 1, 0]


@pytest.mark.parametrize("n_step", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("endings", [("term",), ("trunc",), ("both",), ("term", "trunc", "both")])
def test_every_start_equals_the_oracle_at_every_moment_while_the_ring_wraps(n_step, num_envs, endings):
    recorder = Recorder(n_step + 7, num_envs, n_step, endings)
    for _ in range(4 * (n_step + 7)):
        recorder.step()
        assert recorder.read() == recorder.expected()
    assert recorder.row > 3 * recorder.buffer.length
    assert recorder.expected()


def test_one_step_episodes_are_all_stored_and_never_reach_into_the_next_episode():
    recorder = Recorder(30, 2, n_step=3, lengths=(1,))
    for _ in range(30):
        recorder.step()
    read = recorder.read()
    assert read == recorder.expected()
    assert len(read) == 2 * 15 - 2 * (
        recorder.waiting.all()
    )  # every other row, but for one without successor
    for obs_episode, _, _, _, reward, _, next_episode, *_ in read.values():
        assert next_episode == obs_episode
        assert reward == 100 * obs_episode + 1


def test_a_truncated_row_bootstraps_from_the_same_episode_and_a_terminated_one_does_not_bootstrap():
    recorder = Recorder(40, lengths=(5, 3, 1, 4), endings=("term", "trunc"))
    for _ in range(20):
        recorder.step()
    discounts = [values[5] for _, values in sorted(recorder.read().items())]
    assert discounts[4] == 0.0  # fifth transition: terminated
    assert discounts[7] == GAMMA  # eighth: truncated


OPERATIONS = st.lists(
    st.sampled_from(["step"] * 12 + ["cut", "same", "smaller", "larger"]), min_size=5, max_size=60
)


@given(
    operations=OPERATIONS,
    n_step=st.sampled_from([1, 2, 3, 5]),
    num_envs=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    extra=st.integers(3, 12),
    stack=st.integers(1, 4),
    padding=st.sampled_from(["zero", "first"]),
)
def test_cuts_and_reloads_at_any_moment_leave_what_a_plain_list_holds(
    operations, n_step, num_envs, lengths, extra, stack, padding
):
    least = n_step + stack + 2
    recorder = Recorder(least + extra - 3, num_envs, n_step, lengths=lengths, stack=stack, padding=padding)
    for operation in operations:
        length = recorder.buffer.length
        if operation == "step":
            recorder.step()
        elif operation == "cut":
            recorder.cut()
        else:
            new = {"same": length, "smaller": max(least, length - 4), "larger": length + 5}[operation]
            recorder.reload(new)
        assert len(recorder.buffer) == recorder.row - max(
            recorder.first, recorder.row - recorder.buffer.length
        )
    assert recorder.read() == recorder.expected()


@settings(max_examples=25)
@given(
    operations=st.lists(st.sampled_from(["step"] * 4 + ["cut"]), min_size=20, max_size=60),
    n_step=st.sampled_from([1, 2, 3, 5]),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=3),
)
def test_the_smallest_capacity_never_runs_out_of_starts_once_it_had_one(operations, n_step, lengths):
    recorder = Recorder(n_step + 3, 1, n_step, lengths=lengths)
    had_one, before = False, "cut"
    for operation in operations:
        if operation == "cut" and before == "cut":
            continue  # the source does not cut twice in a row
        getattr(recorder, operation)()
        before = operation
        found = bool(recorder.read())
        assert found or not had_one
        had_one |= found


def test_a_cut_ends_the_running_episodes_as_truncated_and_changes_no_ended_one():
    recorder = Recorder(20, 2, lengths=(2, 9), endings=("term",))  # env 1 starts in an episode of 9 steps
    recorder.step()
    recorder.step()  # env 0 terminates here, env 1 runs
    recorder.cut()
    recorder.step()
    read = recorder.read()
    assert read == recorder.expected()
    assert (read[1, 0][5], read[1, 1][5]) == (0.0, GAMMA)
    assert read[1, 1][6:9] == (7.0, 2.0, read[1, 1][3])  # the true last observation, not the reset one
    assert not recorder.buffer.valid[2].any()


def test_rows_exported_in_segments_and_imported_in_order_equal_the_whole():
    recorder = Recorder(16, 2, n_step=3)
    copy = recorder.new_buffer(16)
    since = 0
    for count in (5, 9, 1, 14):
        for _ in range(count):
            recorder.step()
        copy.import_rows(since, recorder.buffer.export_rows(since))
        since = recorder.buffer.rows_added
    assert len(copy) == len(recorder.buffer) == 16
    expected = recorder.read()
    recorder.buffer = copy
    assert recorder.read() == expected


def test_exported_rows_are_copies_and_exactly_those_asked_for():
    recorder = Recorder(10)
    for _ in range(14):
        recorder.step()
    rows = recorder.buffer.export_rows(11)
    assert len(rows["obs"]) == 3
    before = rows["obs"].clone()
    for _ in range(10):
        recorder.step()
    assert torch.equal(rows["obs"], before)
    assert len(recorder.buffer.export_rows(recorder.buffer.rows_added)["obs"]) == 0
    for since in (13, 25):
        with pytest.raises(ValueError, match=rf"since must be in \[14, 24\], got {since}"):
            recorder.buffer.export_rows(since)


def test_rows_that_do_not_follow_on_replace_what_is_stored():
    recorder = Recorder(10)
    for _ in range(30):
        recorder.step()
    other = recorder.new_buffer(20)
    other.import_rows(0, recorder.buffer.export_rows(20))
    other.import_rows(26, recorder.buffer.export_rows(26))
    assert (other.oldest, len(other), other.rows_added) == (26, 4, 30)


def test_loading_into_a_used_buffer_keeps_none_of_its_own_rows():
    recorder, used = Recorder(10), Recorder(40)
    for _ in range(30):
        recorder.step()
    for _ in range(20):
        used.step()  # its newest row is 19, the state's oldest is 20
    copy_rows(recorder.buffer, used.buffer)
    recorder.reload(40)
    assert len(used.buffer) == 10
    recorder.buffer = used.buffer
    assert recorder.read() == recorder.expected()


def test_rows_of_another_number_of_envs_are_refused_and_not_broadcast():
    one, two = Recorder(10, 1), Recorder(10, 2)
    one.step()
    with pytest.raises(ValueError, match=r"must have the shape .* = \(2, 3\), got \(1, 3\)"):
        copy_rows(one.buffer, two.buffer)


@pytest.mark.parametrize(("num_envs", "n_step", "least"), [(1, 1, 4), (8, 1, 32), (4, 5, 32)])
def test_a_capacity_that_cannot_hold_a_window_per_env_is_refused_with_the_number_needed(
    num_envs, n_step, least
):
    def make(capacity):
        return ReplayBuffer((3,), torch.float32, num_envs, capacity=capacity, n_step=n_step, gamma=0.9)

    assert make(least).length == least // num_envs
    with pytest.raises(UserError, match=rf"buffer\.capacity must be at least .* = {least}, got {least - 1}"):
        make(least - 1)


def test_bytes_stay_bytes_and_what_is_written_is_copied():
    buffer = ReplayBuffer((2,), torch.uint8, 1, capacity=6, n_step=1, gamma=0.9)
    shared, flags = np.zeros((1, 2), dtype=np.uint8), np.array([False])
    shared.flags.writeable = True
    for value in (7, 250):
        shared[:] = value
        buffer.add(shared, np.array([0]), np.array([1.0]), flags, flags, ~flags)
    read = buffer.transitions(torch.tensor([0]))
    assert read["obs"].dtype == read["next_obs"].dtype == torch.uint8
    assert read["obs"].tolist() == [[7, 7]]
    assert read["next_obs"].tolist() == [[250, 250]]


def sampler(cls, recorder, seed=3, batch_size=50, **options):
    """A replay of the recorder's shape, still empty."""
    return cls(
        (3,),
        torch.float32,
        recorder.num_envs,
        GAMMA,
        seed,
        capacity=recorder.buffer.length * recorder.num_envs,
        batch_size=batch_size,
        n_step=recorder.n_step,
        frame_stack=recorder.stack,
        stack_padding=recorder.padding,
        **options,
    )


def uniform(recorder, **options):
    replay = sampler(UniformReplay, recorder, **options)
    copy_rows(recorder.buffer, replay.buffer)
    return replay


@pytest.mark.parametrize("n_step", [1, 3])
def test_eligible_starts_are_drawn_equally_often_and_no_other_row_ever(n_step):
    recorder = Recorder(25, 2, n_step)
    for _ in range(60):
        recorder.step()
    replay = uniform(recorder)
    eligible = recorder.expected()
    drawn = Counter()
    for _ in range(10):
        drawn.update((index // 2, index % 2) for index in replay.sample(40).index.flatten().tolist())
    assert set(drawn) == set(eligible)
    expected = 20_000 / len(eligible)
    chi_square = sum((count - expected) ** 2 / expected for count in drawn.values())
    freedom = len(eligible) - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_a_sample_is_stacked_by_update_and_each_item_is_the_transition_of_its_index():
    recorder = Recorder(20, 2, n_step=2)
    for _ in range(50):
        recorder.step()
    replay = uniform(recorder, batch_size=6)
    batch = replay.sample(4)
    assert batch.obs.shape == batch.next_obs.shape == (4, 6, 3)
    assert batch.action.shape == batch.reward.shape == batch.discount.shape == batch.index.shape == (4, 6)
    assert batch.weight is None
    assert (batch.action.dtype, batch.reward.dtype) == (torch.int64, torch.float32)
    again = replay.buffer.transitions(batch.index.flatten())
    for name, column in again.items():
        assert torch.equal(getattr(batch, name).flatten(0, 1), column)
    minibatches = list(batch.minibatches())
    assert len(minibatches) == 4
    for k, minibatch in enumerate(minibatches):
        assert torch.equal(minibatch.obs, batch.obs[k])
        assert torch.equal(minibatch.index, batch.index[k])


def test_a_loaded_replay_draws_what_the_saved_one_draws_next_and_other_seeds_differ():
    recorder = Recorder(20, 2, n_step=3)
    for _ in range(50):
        recorder.step()
    saved, loaded, other = uniform(recorder, seed=1), uniform(recorder, seed=2), uniform(recorder, seed=2)
    saved.sample(3)
    loaded.load_state_dict(saved.state_dict())  # the rows are there already
    following = saved.sample(3)
    assert torch.equal(loaded.sample(3).obs, following.obs)
    assert not torch.equal(other.sample(3).index, following.index)


def test_the_replay_can_be_sampled_from_the_first_complete_window_on():
    recorder = Recorder(20, 1, n_step=3, lengths=(9,))
    found = []
    for _ in range(5):
        found.append(uniform(recorder).can_sample())
        recorder.step()
    assert found == [False, False, False, False, True]  # three rows and their successor


def test_the_length_counts_rows_over_all_envs_and_stops_at_the_capacity():
    recorder = Recorder(10, 3)
    lengths = []
    for _ in range(12):
        recorder.step()
        lengths.append(len(uniform(recorder)))
    assert lengths == [3 * min(t, 10) for t in range(1, 13)]


@pytest.mark.parametrize("option", ["capacity", "batch_size", "n_step"])
def test_counts_below_one_are_refused_by_name(option):
    with pytest.raises(ValueError, match=option):
        UniformReplay((3,), torch.float32, 1, 0.9, 0, **{option: 0})
