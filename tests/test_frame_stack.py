"""What is acted on is what is learned from: stacks of frames while acting, and as the replay reads them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import trap_envs  # noqa: F401  (registers its envs)
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import GymEnvs
from lit_dqn.experience import ExperienceSource, reset_seeds
from lit_dqn.replay.uniform import UniformReplay

PADDING = {"zero": "zero", "first": "reset"}  # ours -> the word of Gymnasium's wrapper


class Watching:
    """Random actions; keeps every stack it was shown, by the number of the row it leads to."""

    def __init__(self, num_actions, replay):
        self.num_actions, self.buffer = num_actions, replay.buffer
        self.shown = {}
        self.generator = np.random.default_rng(0)

    def __call__(self, obs, epsilon):
        self.shown[self.buffer.rows_added] = np.array(obs)
        return self.generator.integers(self.num_actions, size=len(obs))


GAME = {
    "id": "ale_py:ALE/Breakout-v5",
    "kwargs": {"obs_type": "grayscale"},
    "max_episode_steps": 60,
}
"""A real game, cut often."""


def watched_source(env_id, num_envs, count, padding, capacity=1000):
    env = GymEnvs(**(GAME if env_id == "Breakout" else {"id": env_id}))
    dtype = torch.uint8 if env.observation_space.dtype == np.uint8 else torch.float32
    options = {"capacity": capacity, "frame_stack": count, "stack_padding": padding}
    replay = UniformReplay(env.observation_space.shape, dtype, num_envs, 0.9, 0, **options)
    actor = Watching(env.num_actions, replay)
    stack = FrameStack(count, padding)
    source = ExperienceSource(env.make(num_envs), env.id, replay, actor, lambda _: 0.0, 0, stack)
    return source, actor, env


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("env_id", ["Trap/FrameId-v0", "CartPole-v1"])
def test_every_stored_start_reads_back_as_the_stack_that_was_acted_on(env_id, num_envs, count, padding):
    source, actor, _ = watched_source(env_id, num_envs, count, padding, capacity=60 * num_envs)
    read = 0
    for until in (20, 40, 60, 90, 150, 200):
        source.collect(until * num_envs)
        buffer = source.replay.buffer
        index = torch.arange(*buffer.candidates())
        index = index[buffer.eligible(index)]
        for i, obs in zip(index.tolist(), buffer.transitions(index)["obs"], strict=True):
            assert np.array_equal(obs.numpy(), actor.shown[i // num_envs][i % num_envs])
            read += 1
        source.cut()  # running episodes end here, their stacks too
    assert read > 100 * num_envs


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("env_id", ["Trap/FrameId-v0", "Acrobot-v1", "Breakout"])
def test_stacks_equal_those_of_gymnasiums_wrapper_with_next_obs_at_every_ending(env_id, padding):
    source, _, env = watched_source(env_id, 1, 4, padding)
    source.collect(150)
    buffer = source.replay.buffer
    env = gym.wrappers.FrameStackObservation(env.make_single(), 4, padding_type=PADDING[padding])
    obs, _ = env.reset(seed=reset_seeds(source.envs, 0, "train envs", 0)[0])
    for row in range(buffer.rows_added - 1):
        if not buffer.valid[row, 0]:
            obs, _ = env.reset()
            continue
        read = buffer.transitions(torch.tensor([row]))
        assert np.array_equal(read["obs"][0].numpy(), obs)
        obs, _, terminated, truncated, _ = env.step(int(buffer.action[row, 0]))
        assert np.array_equal(read["next_obs"][0].numpy(), obs)
        assert bool(buffer.boundary[row, 0]) == (terminated or truncated)
    assert buffer.boundary.any() or env_id == "Acrobot-v1"


def test_before_an_episodes_first_frame_stand_zeros_or_that_frame():
    for padding, before in (("zero", 0), ("first", 7)):
        stack = FrameStack(3, padding)
        stack.start(np.array([[7.0], [8.0]]))
        assert stack.frames[0].flatten().tolist() == [before, before, 7]
        stack.push(np.array([[5.0], [9.0]]), first=np.array([False, True]))
        assert stack.frames[0].flatten().tolist() == [before, 7, 5]
        pad = 0 if padding == "zero" else 9
        assert stack.frames[1].flatten().tolist() == [pad, pad, 9]


def test_a_stack_of_one_has_no_axis_of_its_own():
    stack = FrameStack()
    stack.start(np.zeros((2, 3)))
    assert stack.frames.shape == (2, 3)
    assert stack.shape((3,)) == (3,)
    assert FrameStack(4).shape((3,)) == (4, 3)
