"""The experience source through real vector envs, against the oracle's plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import trap_envs
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import GymEnvs
from lit_dqn.errors import RunError
from lit_dqn.experience import EpisodeAccounts, EpsilonGreedy, ExperienceSource
from lit_dqn.replay.uniform import UniformReplay
from lit_dqn.seeding import numpy_generator


def make_source(env_id, num_envs, *, epsilon=1.0, seed=0, length=400, n_step=1, q_values=None, **kwargs):
    env = GymEnvs(id=env_id, kwargs=kwargs)
    return source_of(env.make(num_envs), env, epsilon, seed, length, n_step, q_values)


def source_of(envs, env, epsilon=1.0, seed=0, length=400, n_step=1, q_values=None):
    space = env.observation_space
    dtype = torch.uint8 if space.dtype == np.uint8 else torch.float32
    capacity = length * envs.num_envs
    replay = UniformReplay(space.shape, dtype, envs.num_envs, 0.5, 0, capacity=capacity, n_step=n_step)

    def zeros(obs):
        return torch.zeros(len(obs), env.num_actions)

    actor = EpsilonGreedy(q_values or zeros, env.num_actions, numpy_generator(seed, "exploration"))
    return ExperienceSource(envs, env.id, replay, actor, lambda _: epsilon, seed, FrameStack())


def stored(source, copy):
    """(obs, action, reward, next_obs, terminated, boundary) of each stored transition of one copy."""
    buffer = source.replay.buffer
    rows = [t for t in range(len(buffer) - 1) if buffer.valid[t, copy]]
    return [
        (
            buffer.obs[t, copy].tolist(),
            int(buffer.action[t, copy]),
            float(buffer.reward[t, copy]),
            buffer.obs[t + 1, copy].tolist(),
            bool(buffer.terminated[t, copy]),
            bool(buffer.boundary[t, copy]),
        )
        for t in rows
    ]


def oracle(actions, **kwargs):
    return [
        (t.obs.tolist(), t.action, t.reward, t.next_obs.tolist(), t.terminated, t.ends)
        for t in trap_envs.counting_trace(actions, **kwargs)
    ]


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("endings", [("term", "trunc"), ("both",), ("trunc",)])
@pytest.mark.parametrize("lengths", [(5, 3, 1, 4), (1,)])
def test_what_is_stored_of_each_copy_is_exactly_what_the_oracle_lists(num_envs, endings, lengths):
    source = make_source("Trap/Counting-v0", num_envs, endings=endings, lengths=lengths)
    source.collect(60 * num_envs)
    for copy in range(num_envs):
        found = stored(source, copy)
        assert found == oracle([row[1] for row in found], endings=endings, lengths=lengths)
        assert len(found) >= 55


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_env_steps_counted_are_those_the_envs_took_and_no_reset_row_is_a_start(num_envs):
    source = make_source("Trap/Counting-v0", num_envs)
    for until in (1, 10, 50, 121):
        source.collect(until)
        assert until <= source.env_step < until + num_envs
        taken = sum(env.unwrapped.uid for env in source.envs.envs)
        buffer = source.replay.buffer
        assert source.env_step == taken == int(buffer.valid.sum())
        reset_rows = ~buffer.valid[: len(buffer)]
        assert (buffer.reward[: len(buffer)][reset_rows] == 0).all()
        endings = buffer.boundary[: len(buffer) - 1]
        assert torch.equal(reset_rows[1:], endings)  # one reset row after each ending and nowhere else


def test_episodes_are_accounted_as_the_oracle_sums_them_with_three_copies():
    source = make_source("Trap/Counting-v0", 3)
    source.collect(150)
    expected, sums = [], [(0.0, 0)] * 3
    traces = [iter(stored(source, copy)) for copy in range(3)]
    buffer = source.replay.buffer
    for t in range(len(buffer) - 1):
        for copy in range(3):
            if not buffer.valid[t, copy]:
                continue
            _, _, reward, _, _, ends = next(traces[copy])
            sums[copy] = (sums[copy][0] + reward, sums[copy][1] + 1)
            if ends:
                expected.append(sums[copy])
                sums[copy] = (0.0, 0)
    lengths = [length for _, length in expected[:12]]
    assert lengths == [5] * 3 + [3] * 3 + [1] * 3 + [4] * 3
    finished = source.take_finished()
    assert finished[: len(expected)] == expected
    assert source.episodes == len(finished)
    assert source.take_finished() == []


def test_accounts_of_one_step_episodes_restart_after_each_reset_row():
    accounts = EpisodeAccounts(2)
    ended, running = np.array([True, False]), np.array([False, False])
    assert accounts.add(np.array([1.0, 2.0]), ended) == [(0, 1.0, 1)]
    assert accounts.add(np.array([0.0, 2.0]), running) == []  # copy 0: its reset row
    assert accounts.add(np.array([3.0, 2.0]), np.array([True, True])) == [(0, 3.0, 1), (1, 6.0, 3)]


def test_no_info_of_an_env_can_break_or_change_the_accounts():
    source = make_source("Trap/ChangingInfo-v0", 3, epsilon=0.0)
    source.collect(60)
    assert source.episodes >= 9
    assert set(source.take_finished()) == {(0.0, 6)}  # greedy on zeros: action 0 pays nothing


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("kind", trap_envs.RewardKindEnv.KINDS)
def test_rewards_of_every_kind_are_stored_as_scalars_and_drawn_as_flat_batches(kind, num_envs):
    source = make_source(f"Trap/Reward_{kind}-v0", num_envs)
    source.collect(20)
    batch = source.replay.sample(2)
    assert batch.reward.shape == (2, 64)
    assert batch.reward.dtype == torch.float32
    expected = 0.5 if kind in ("float", "float64", "float32", "array0", "array1") else 1.0
    assert set(batch.reward.flatten().tolist()) == {expected}


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("env_id", ["Trap/AliasedObs-v0", "Trap/ReadOnlyObs-v0"])
def test_an_env_that_reuses_or_locks_its_array_is_stored_as_it_was_at_each_step(env_id, num_envs):
    source = make_source(env_id, num_envs)
    source.collect(30 * num_envs)
    for copy in range(num_envs):
        found = stored(source, copy)
        times = [(obs[0], next_obs[0]) for obs, _, _, next_obs, _, _ in found]
        assert times == [(float(i % 6), float(i % 6 + 1)) for i in range(len(found))]


class ReusingVector:
    """A vector env that gives out one array for ever, and a read-only view of it."""

    num_envs = 2

    def __init__(self):
        self._obs = np.zeros((2, 1), dtype=np.float32)

    def _view(self):
        view = self._obs.view()
        view.flags.writeable = False
        return view

    def reset(self, *, seed=None):
        self._obs[:] = 0
        return self._view(), {}

    def step(self, action):
        self._obs += 1
        no = np.zeros(2, dtype=bool)
        return self._view(), np.zeros(2), no, no.copy(), {}


def test_a_vector_env_that_reuses_its_array_is_stored_as_it_was_at_each_step():
    source = source_of(ReusingVector(), GymEnvs(id="Trap/NoRender-v0"), epsilon=0.5)
    source.collect(20)
    assert source.replay.buffer.obs[:10, 0, 0].tolist() == [float(t) for t in range(10)]


def test_bytes_reach_the_replay_as_bytes():
    source = make_source("Trap/FrameId-v0", 2, shape=[4, 4])
    source.collect(20)
    batch = source.replay.sample(1)
    assert batch.obs.dtype == torch.uint8
    assert batch.obs.shape == (1, 64, 4, 4)
    episodes, next_episodes = batch.obs[0, :, 0, 0] // 16, batch.next_obs[0, :, 0, 0] // 16
    assert torch.equal(episodes, next_episodes)
    assert torch.equal(batch.next_obs[0, :, 0, 0], batch.obs[0, :, 0, 0] + 1)


def test_action_indices_are_stored_and_the_envs_own_numbers_are_sent():
    source = make_source("Trap/DiscreteStart1-v0", 2)
    source.collect(60)
    sent = [action for env in source.envs.envs for action in env.unwrapped.seen]
    rows = [row for copy in range(2) for row in stored(source, copy)]
    assert set(sent) == {1, 2, 3}
    assert {row[1] for row in rows} == {0, 1, 2}
    assert all(reward == (1.0 if action == 2 else 0.0) for _, action, reward, *_ in rows)


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(
    ("env_id", "field", "step"),
    [
        ("Trap/NanObs-v0", "observation", 10),
        ("Trap/NanResetObs-v0", "observation", 12),
        ("Trap/NanReward-v0", "reward", 10),
        ("Trap/InfReward-v0", "reward", 10),
    ],
)
def test_a_nan_or_inf_stops_the_run_naming_env_field_and_step_and_is_not_stored(
    env_id, field, step, num_envs
):
    source = make_source(env_id, num_envs)
    with pytest.raises(RunError) as stop:
        source.collect(1000)
    # Each copy turns bad at its own tenth step; the step named is the one before which all was well.
    before = (step if "Reset" in env_id else step - 1) * num_envs
    assert str(stop.value) == (
        f"env {env_id} (copy 0): its {field} is NaN or infinite as float32 at env step {before}."
    )
    assert source.env_step == before
    buffer = source.replay.buffer
    assert torch.isfinite(buffer.obs).all()
    assert torch.isfinite(buffer.reward).all()


def test_a_nan_in_the_first_observation_is_refused():
    source = make_source("Trap/NanResetObs-v0", 1, at_step=0)
    with pytest.raises(RunError, match=r"its observation is NaN or infinite .* at env step 0"):
        source.collect(1)


def test_big_rewards_are_stored_and_those_beyond_float32_are_refused_like_inf():
    source = make_source("Trap/BigReward-v0", 1)
    source.collect(20)
    assert set(source.replay.sample(1).reward.flatten().tolist()) == {0.0, float(np.float32(1e12))}
    with pytest.raises(RunError, match="its reward is NaN or infinite as float32"):
        make_source("Trap/BigReward-v0", 1, scale=1e39).collect(100)


def test_exploration_is_drawn_for_each_env_and_not_once_for_all():
    def zeros(obs):
        return torch.zeros(len(obs), 50)

    actor = EpsilonGreedy(zeros, 50, numpy_generator(0, "x"))
    explored = np.stack([actor(np.zeros((64, 1), dtype=np.float32), 0.5) != 0 for _ in range(100)])
    assert 0.44 < explored.mean() < 0.54  # half of the draws, of which 1 in 50 is the greedy action
    assert (explored.any(axis=1) & ~explored.all(axis=1)).all()
    together = (explored[:, 0] == explored[:, 1]).mean()
    assert 0.3 < together < 0.7


def test_random_actions_are_uniform_and_greedy_ones_are_the_largest_value():
    obs = np.array([[0.0, 3.0, 1.0], [5.0, 2.0, 1.0], [0.0, 1.0, 2.0]], dtype=np.float32)
    actor = EpsilonGreedy(lambda values: values, 3, numpy_generator(0, "x"))
    assert actor(obs, 0.0).tolist() == [1, 0, 2]
    drawn = np.concatenate([actor(obs, 1.0) for _ in range(2000)])
    counts = np.bincount(drawn, minlength=3)
    assert ((counts - 2000) ** 2 / 2000).sum() < 13.8  # chi-square, two degrees of freedom, p = 0.001


def test_epsilon_shifts_no_stream():
    def zeros(obs):
        return torch.zeros(len(obs), 4)

    obs = np.zeros((5, 1), dtype=np.float32)
    actors = {e: EpsilonGreedy(zeros, 4, numpy_generator(3, "x")) for e in (0.0, 0.3, 1.0)}
    taken = {e: np.stack([actor(obs, e) for _ in range(50)]) for e, actor in actors.items()}
    states = [actor.generator.bit_generator.state for actor in actors.values()]
    assert states[0] == states[1] == states[2]
    assert (taken[0.0] == 0).all()
    assert ((taken[0.3] == taken[1.0]) | (taken[0.3] == 0)).all()


def rows_of(source):
    buffer = source.replay.buffer
    return {name: getattr(buffer, name)[: len(buffer)] for name in buffer.COLUMNS}


@pytest.mark.parametrize("env_id", ["Trap/SeededNoise-v0", "CartPole-v1"])
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(env_id):
    sources = [make_source(env_id, 3, seed=seed) for seed in (1, 1, 2)]
    for source in sources:
        source.collect(200)
    one, again, other = map(rows_of, sources)
    for name in one:
        assert torch.equal(one[name], again[name])
    assert not torch.equal(one["obs"], other["obs"])
    assert not torch.equal(one["action"], other["action"])


def test_each_copy_gets_its_own_seed_once_and_goes_on_with_its_stream_after_an_episode():
    source = make_source("Trap/SeededNoise-v0", 4)
    source.collect(60)
    seen = [env.unwrapped.seeds_seen for env in source.envs.envs]
    assert len({seeds[0] for seeds in seen}) == 4
    assert all(len(seeds) > 2 and set(seeds[1:]) == {None} for seeds in seen)
    firsts = source.replay.buffer.obs[0]
    assert len({tuple(obs.tolist()) for obs in firsts}) == 4


def test_a_cut_stores_the_true_last_observation_and_resets_all_copies_with_new_seeds():
    source = make_source("Trap/SeededNoise-v0", 2)
    source.collect(8)  # four steps of each copy's six
    last = source._obs.copy()
    source.cut()
    source.collect(10)
    buffer = source.replay.buffer
    assert buffer.valid[:6].tolist() == [[True] * 2] * 4 + [[False] * 2] + [[True] * 2]
    assert buffer.boundary[:5].tolist() == [[False] * 2] * 3 + [[True] * 2] + [[False] * 2]
    assert not buffer.terminated.any()
    assert buffer.obs[4].tolist() == last.tolist()
    seen = [env.unwrapped.seeds_seen for env in source.envs.envs]
    assert len({seed for seeds in seen for seed in seeds}) == 4
    assert source.take_finished() == []  # a cut episode is no finished one
    source.collect(22)
    assert {length for _, length in source.take_finished()} == {6}


def test_cutting_twice_in_a_row_stores_nothing_more_and_before_the_first_step_nothing_at_all():
    source = make_source("Trap/SeededNoise-v0", 2)
    source.cut()
    assert len(source.replay.buffer) == 0
    source.collect(8)
    source.cut()
    rows = len(source.replay.buffer)
    source.cut()
    assert len(source.replay.buffer) == rows


@pytest.mark.parametrize("env_id", ["Trap/SeededNoise-v0", "CartPole-v1", "Trap/Counting-v0"])
def test_a_source_restored_after_a_cut_goes_on_as_the_one_that_was_saved(env_id):
    saved, restored = make_source(env_id, 3, seed=5, epsilon=0.7), make_source(env_id, 3, seed=5, epsilon=0.7)
    saved.collect(77)
    saved.cut()
    state, replay = saved.state_dict(), saved.replay.state_dict()
    restored.load_state_dict(state)
    buffer = saved.replay.buffer
    restored.replay.buffer.import_rows(buffer.oldest, buffer.export_rows(buffer.oldest))
    restored.replay.load_state_dict(replay)
    if env_id == "Trap/Counting-v0":  # counts its own resets, which no seed restores
        for env, other in zip(saved.envs.envs, restored.envs.envs, strict=True):
            other.unwrapped.episode = env.unwrapped.episode
    for source in (saved, restored):
        source.collect(200)
        source.cut()
    assert restored.env_step == saved.env_step
    assert restored.episodes == saved.episodes
    assert restored.take_finished() == saved.take_finished()
    for name, column in rows_of(saved).items():
        assert torch.equal(rows_of(restored)[name], column)
    assert restored.state_dict() == saved.state_dict()


def test_a_running_episode_is_never_saved():
    source = make_source("Trap/SeededNoise-v0", 1)
    source.collect(3)
    with pytest.raises(AssertionError, match="cut"):
        source.state_dict()


def test_the_first_collection_goes_on_until_a_whole_window_is_stored():
    source = make_source("Trap/Endless-v0", 2, n_step=5)
    source.collect_startable(2)
    assert source.env_step == 12  # five rows and their successor, of both copies
    assert source.replay.can_sample()


def test_epsilon_and_the_progress_are_functions_of_the_env_step_before_and_after_each_step():
    source = make_source("Trap/Counting-v0", 2)
    asked, told = [], []
    source.epsilon = lambda env_step: asked.append(env_step) or 0.5
    source.on_step = told.append
    source.collect(30)
    assert asked[0] == 0
    assert asked[1:] == told[:-1]
    assert told[-1] == source.env_step
    assert all(later - earlier in (0, 1, 2) for earlier, later in zip(asked, told, strict=True))


def test_the_vector_form_of_cartpole_stores_what_its_episodes_were():
    source = make_source("CartPole-v1", 4, length=600)
    source.collect(800)
    finished = source.take_finished()
    assert len(finished) > 20
    assert all(episode_return == length for episode_return, length in finished)
    lengths = []
    buffer = source.replay.buffer
    for copy in range(4):
        running = 0
        for t in range(len(buffer)):
            running += int(buffer.valid[t, copy])
            if buffer.boundary[t, copy]:
                lengths.append(running)
                running = 0
                assert buffer.terminated[t, copy]
                if t + 1 < len(buffer):
                    assert not buffer.valid[t + 1, copy]
                    pole, cart = buffer.obs[t + 1, copy, 2].abs(), buffer.obs[t + 1, copy, 0].abs()
                    assert pole > 0.2094 or cart > 2.4  # the true last observation
    assert sorted(lengths) == sorted(length for _, length in finished)
