"""The border around a single env: numbers in, numbers out, whatever the env's habits."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import trap_envs
from lit_dqn.envs.border import Border
from lit_dqn.errors import RunError


def bordered(name, **kwargs):
    return Border(gym.make(f"Trap/{name}-v0", disable_env_checker=True, **kwargs), f"Trap/{name}-v0")


class Scripted(gym.Env):
    """Returns what it is told to."""

    def __init__(self, reset=None, step=None, space=None):
        self.observation_space = space or spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        fine = np.zeros(2, dtype=np.float32)
        self.reset_result = (fine, {}) if reset is None else reset
        self.step_result = (fine, 0.0, False, False, {}) if step is None else step

    def reset(self, *, seed=None, options=None):
        return self.reset_result

    def step(self, action):
        return self.step_result


@pytest.mark.parametrize("kind", trap_envs.RewardKindEnv.KINDS)
def test_a_reward_of_any_scalar_kind_becomes_one_float(kind):
    env = bordered(f"Reward_{kind}")
    env.reset()
    reward = env.step(0)[1]
    assert isinstance(reward, float)
    assert reward == float(np.asarray(trap_envs.RewardKindEnv.KINDS[kind]()).item())


@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), np.array([]), [1.0, 2.0], None, "high", 1j, {}])
def test_a_reward_that_is_not_one_number_is_refused_by_env_and_field(reward):
    env = Border(Scripted(step=(np.zeros(2, np.float32), reward, False, False, {})), "My/Env-v0")
    with pytest.raises(RunError, match=r"^env My/Env-v0: its reward must be one number, got "):
        env.step(0)


@pytest.mark.parametrize("start", [1, -2])
def test_action_indices_reach_the_env_numbered_from_its_start(start):
    env = Border(trap_envs.DiscreteStartEnv(n=3, start=start), "X-v0")
    assert env.action_space == spaces.Discrete(3)
    env.reset()
    rewards = [env.step(np.int64(index))[1] for index in (0, 1, 2)]
    assert env.unwrapped.seen == [start, start + 1, start + 2]
    assert rewards == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("action", [1, np.int64(1), np.int32(1), np.array(1)])
def test_the_env_gets_a_python_int_whatever_the_action_came_as(action):
    env = bordered("StrictActionType")
    env.reset()
    assert env.step(action)[1] == 1.0


def test_infos_are_dropped_so_that_no_key_of_an_env_can_matter():
    env = bordered("ChangingInfo")
    assert env.reset()[1] == {}
    assert [env.step(0)[4] for _ in range(6)] == [{}] * 6


def test_an_array_that_the_env_overwrites_does_not_change_what_was_given_out():
    env = bordered("AliasedObs")
    given = [env.reset()[0], *(env.step(0)[0] for _ in range(4))]
    assert [obs.tolist() for obs in given] == [[float(t)] * 4 for t in range(5)]


def test_a_read_only_observation_is_given_out_writable():
    assert bordered("ReadOnlyObs").reset()[0].flags.writeable


def test_float64_observations_become_float32():
    env = bordered("Float64Obs")
    obs = env.reset()[0]
    assert obs.dtype == env.observation_space.dtype == np.float32
    assert obs[0] == np.float32(1 / 3)


def test_a_later_observation_of_another_shape_is_refused_by_env():
    env = Border(Scripted(step=(np.zeros(3, np.float32), 0.0, False, False, {})), "My/Env-v0")
    env.reset()
    with pytest.raises(
        RunError, match=r"^env My/Env-v0: its observation has shape \(3,\), but the space says \(2,\)\.$"
    ):
        env.step(0)


def test_a_category_out_of_range_is_refused_by_env():
    env = Border(Scripted(reset=(-1, {}), space=spaces.Discrete(3)), "My/Env-v0")
    with pytest.raises(RunError, match=r"^env My/Env-v0: its observation has the category -1"):
        env.reset()


@pytest.mark.parametrize("result", [np.zeros(3, np.float32), (np.zeros(2), 0.0, False, {}), 0])
def test_the_old_interface_is_refused_with_what_is_expected(result):
    env = Border(Scripted(reset=np.zeros(3, np.float32), step=result), "My/Env-v0")
    with pytest.raises(RunError, match=r"its reset\(\) must return \(obs, info\); the old interface"):
        env.reset()
    with pytest.raises(
        RunError, match=r"its step\(\) must return \(obs, reward, terminated, truncated, info"
    ):
        env.step(0)


def test_an_error_of_the_env_itself_comes_through_unchanged():
    env = bordered("RaiseInStep", at_step=1)
    env.reset()
    with pytest.raises(RuntimeError, match="trap: planned failure in step 1"):
        env.step(0)


def test_flags_of_any_kind_become_bools_and_the_seed_goes_through():
    env = Border(Scripted(step=(np.zeros(2, np.float32), 0, np.bool_(True), np.array([0]), {})), "X-v0")
    terminated, truncated = env.step(0)[2:4]
    assert terminated is True
    assert truncated is False
    noise = bordered("SeededNoise")
    assert noise.reset(seed=5)[0].tolist() == noise.reset(seed=5)[0].tolist()
    assert noise.unwrapped.seeds_seen == [5, 5]
