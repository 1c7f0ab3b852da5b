"""`load`: a policy from the file alone, in the env's own numbering."""

from __future__ import annotations

import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from omegaconf import OmegaConf

import trap_envs
from conftest import TINY
from lit_dqn import compose, load, train
from lit_dqn.errors import UserError
from lit_dqn.networks.mlp import MLP
from runs import config


class AnySpaces(gym.Env):
    """Random observations of any space; episodes of five steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, kind: str, start: int = 0) -> None:
        self.observation_space = SPACES[kind]
        self.action_space = spaces.Discrete(3, start=start)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return self.observation_space.sample(), float(action), self.t >= 5, False, {}


BOX = spaces.Box(-1, 1, shape=(2, 3), dtype=np.float64)
SPACES = {
    "box": BOX,
    "bytes": spaces.Box(0, 255, shape=(4,), dtype=np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), BOX)),
}
gym.register("AnySpaces-v0", entry_point=f"{__name__}:AnySpaces")


def trained(folder: Path, *overrides: str) -> Path:
    small = ["total_env_steps=80", "evaluation.episodes=1", "env=gym"]
    train(compose([*TINY, *small, *overrides]), folder)
    return folder / "checkpoints" / "last.ckpt"


def batch(space: gym.Space, count: int):
    """What a vector env of `count` copies gives out."""
    return gym.vector.utils.concatenate(
        space,
        [space.sample() for _ in range(count)],
        gym.vector.utils.create_empty_array(space, count),
    )


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("start", [0, -2])
def test_a_policy_takes_observations_as_the_env_emits_them(tmp_path, kind, start):
    if start and kind not in ("box", "dict"):
        pytest.skip("the actions' numbering does not depend on the observation")
    kwargs = f"+env.kwargs={{kind:{kind},start:{start}}}"
    path = shutil.move(trained(tmp_path / "run", "env.id=AnySpaces-v0", kwargs), tmp_path / "moved.ckpt")
    shutil.rmtree(tmp_path / "run")
    policy = load(path)
    obs = batch(SPACES[kind], 6)
    values, actions = policy.q_values(obs), policy.act(obs)
    assert (values.shape, values.dtype) == ((6, 3), np.float32)
    assert actions.shape == (6,)
    assert np.issubdtype(actions.dtype, np.integer)
    np.testing.assert_array_equal(actions, values.argmax(axis=1) + start)
    assert policy.q_values(batch(SPACES[kind], 1)).shape == (1, 3)


def test_the_greedy_action_is_in_the_envs_own_numbering(tmp_path):
    # Only the last action, number 3 of 1..3, pays.
    steps = ["total_env_steps=2000", "experience.updates_per_round=20", "optimizer.lr=0.01", "gamma=0.5"]
    config = compose([*TINY, "env=gym", "env.id=trap_envs:Trap/DiscreteStart1-v0", *steps])
    train(config, tmp_path / "run")
    env = trap_envs.DiscreteStartEnv(start=1)
    obs, _ = env.reset()
    assert load(tmp_path / "run" / "checkpoints" / "last.ckpt").act(obs[None]).tolist() == [3]


def test_the_best_checkpoint_loads_too_and_a_foreign_file_does_not(tmp_path):
    path = trained(tmp_path / "run", "env.id=CartPole-v1")
    assert load(path.with_name("best.ckpt")).act(np.zeros((2, 4), np.float32)).shape == (2,)
    assert load(str(path)).q_values([[0.0, 0.0, 0.0, 0.0]]).shape == (1, 2)
    with pytest.raises(UserError, match="no such checkpoint"):
        load(tmp_path / "none.ckpt")
    assert not list(tmp_path.glob("outputs"))


class Own(MLP):
    """A user's network."""


def test_a_checkpoint_of_ones_own_network_is_loaded_once_it_is_trusted(tmp_path):
    own = OmegaConf.create({"network": {"_target_": f"{__name__}.Own"}})
    train(OmegaConf.merge(config("env=cartpole", "total_env_steps=100"), own), tmp_path)
    path = tmp_path / "checkpoints" / "last.ckpt"
    with pytest.raises(UserError, match=r"network\._target_=.*Own lies outside lit_dqn"):
        load(path)
    policy = load(path, trust=True)
    assert isinstance(policy.q_net, Own)
    assert policy.q_values(np.zeros((2, 4), dtype=np.float32)).shape == (2, 2)
