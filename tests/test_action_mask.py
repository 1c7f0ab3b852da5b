"""Actions that an observation forbids are never tried, never chosen and never a target's maximum."""

from __future__ import annotations

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from lit_dqn import compose, load, train
from lit_dqn.agents.c51 import C51
from lit_dqn.agents.dqn import DQN
from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.envs.action_mask import InfoActionMask, allowed, mask_slice
from lit_dqn.errors import RunError, UserError
from lit_dqn.experience import EpsilonGreedy
from lit_dqn.networks.mlp import MLP
from lit_dqn.networks.qnetwork import FORBIDDEN
from lit_dqn.types import Batch

GAMMA = 0.9
REWARDS = [0.0, 1.0, 2.0]


class Doors(gym.Env):
    """Four steps; action 2 pays most and is allowed at odd steps only; elsewhere taking it is an error.

    Where the mask is depends on `info_only`. At the end nothing is allowed any more.
    """

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, info_only: bool = False) -> None:
        self.info_only = info_only
        self.action_space = spaces.Discrete(3)
        box = spaces.Box(0.0, 1.0, (5,), np.float32)
        mask = spaces.MultiBinary(3)
        self.observation_space = box if info_only else spaces.Dict(a_state=box, action_mask=mask)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen()

    def _seen(self):
        mask = np.array([1, 1, self.t % 2] if self.t < 4 else [0, 0, 0], dtype=np.int8)
        state = np.eye(5, dtype=np.float32)[self.t]
        if self.info_only:
            return state, {"action_mask": mask}
        return {"a_state": state, "action_mask": mask}, {}

    def step(self, action):
        if action == 2 and self.t % 2 == 0:
            raise AssertionError("a forbidden action was taken")
        self.t += 1
        obs, info = self._seen()
        return obs, REWARDS[action], self.t == 4, False, info


gym.register("Tests/Doors-v0", entry_point=Doors)

QUICK = [
    "env=gym",
    "env.id=Tests/Doors-v0",
    f"gamma={GAMMA}",
    "total_env_steps=1200",
    "experience.learning_starts=200",
    "agent.target_update_interval=20",
    "optimizer.lr=3e-3",
    "network.hidden=[32]",
    "evaluation.episodes=2",
    "evaluation.epsilon=0.5",
    "trainer.progress_bar=false",
    "logger.tensorboard=false",
]
AGENTS = {
    "dqn": [],
    "double, dueling, noisy, prioritised": [
        "agent.double=true",
        "network.dueling=true",
        "network.noisy=true",
        "buffer=prioritized",
    ],
    "munchausen": ["agent.munchausen=true"],
    "c51": ["agent=c51", "agent.v_min=-1", "agent.v_max=8"],
    "iqn": ["agent=iqn"],
}
FROM_INFO = ["+env.kwargs.info_only=true", "env.wrappers=[lit_dqn.envs.action_mask.InfoActionMask]"]


def best_values() -> np.ndarray:
    """Q* of the four steps, forbidden actions excluded."""
    values, following = np.zeros((4, 3)), 0.0
    for t in reversed(range(4)):
        values[t] = np.array(REWARDS) + GAMMA * following
        following = values[t].max() if t % 2 else values[t, :2].max()
    return values


@pytest.mark.parametrize("agent", AGENTS)
def test_an_env_that_fails_at_a_forbidden_action_is_learnt_exactly(agent, tmp_path):
    train(compose([*QUICK, *AGENTS[agent]]), tmp_path)
    policy = load(tmp_path / "checkpoints" / "last.ckpt")
    masks = np.array([[1, 1, t % 2] for t in range(4)])
    obs = {"a_state": np.eye(5, dtype=np.float32)[:4], "action_mask": masks}
    assert policy.act(obs).tolist() == [1, 2, 1, 2]
    values = policy.q_values(obs)
    assert (values[masks == 0] == FORBIDDEN).all()
    if agent != "munchausen":  # its values are another task's
        np.testing.assert_allclose(values[masks == 1], best_values()[masks == 1], atol=0.5)


@pytest.mark.parametrize("stacked", [[], ["buffer.frame_stack=2"]])
def test_a_mask_in_info_becomes_a_part_of_the_observation(stacked, tmp_path):
    result = train(compose([*QUICK, *FROM_INFO, *stacked]), tmp_path)
    assert result["random_return_mean"] is not None
    policy = load(tmp_path / "checkpoints" / "last.ckpt")
    obs = {"action_mask": np.array([[1, 1, 0]]), "observation": np.eye(5, dtype=np.float32)[:1]}
    if stacked:
        obs = {name: np.stack([0 * part, part], axis=1) for name, part in obs.items()}
    assert policy.act(obs).tolist() == [1]
    assert policy.q_values(obs)[0, 2] == FORBIDDEN


def test_a_mask_that_info_lacks_or_of_another_size_is_named():
    class Careless(Doors):
        def _seen(self):
            state, _ = super()._seen()
            return state, self.info

    env = InfoActionMask(Careless(info_only=True))
    env.unwrapped.info = {"lives": 3}
    with pytest.raises(RunError, match=r"has no 'action_mask', it has \['lives'\]"):
        env.reset()
    env.unwrapped.info = {"action_mask": np.ones(4)}
    with pytest.raises(RunError, match=r"must have the shape \(3,\), got \(4,\)"):
        env.reset()


def test_the_place_of_the_mask_follows_the_spaces_order():
    first = spaces.Dict(a=spaces.Discrete(4), action_mask=spaces.MultiBinary(2), z=spaces.Box(0, 1, (3,)))
    assert mask_slice(first, 2) == slice(4, 6)
    obs = {"a": 1, "action_mask": np.array([0, 1], dtype=np.int8), "z": np.full(3, 0.5, dtype=np.float32)}
    assert spaces.flatten(first, obs)[4:6].tolist() == [0, 1]
    assert mask_slice(spaces.Dict(a=spaces.Discrete(4)), 2) is None
    assert mask_slice(spaces.Box(0, 1, (2,)), 2) is None
    with pytest.raises(UserError, match=r"action_mask has the shape \(2,\), but there are 3 actions"):
        mask_slice(first, 3)


def test_where_nothing_is_allowed_the_mask_counts_for_nothing():
    obs = np.array([[7.0, 0, 1], [7.0, 0, 0]])
    assert allowed(obs, slice(1, 3)).tolist() == [[False, True], [True, True]]
    assert allowed(np.stack([0 * obs, obs], axis=1), slice(1, 3)).tolist() == [[False, True], [True, True]]


def test_exploring_draws_the_allowed_actions_alike_and_no_other():
    actor = EpsilonGreedy(lambda _: torch.zeros(1, 3), 3, np.random.default_rng(0), slice(0, 3))
    obs = np.tile(np.array([1.0, 0.0, 1.0], dtype=np.float32), (4000, 1))
    counts = np.bincount(actor(obs, 1.0), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 2000) < 200


@pytest.mark.parametrize(
    "agent",
    [
        DQN(),
        DQN(double=True),
        DQN(munchausen=True),
        C51(num_atoms=5),
        QRDQN(num_quantiles=3),
        QRDQN(num_quantiles=3, munchausen=True),
        IQN(),
        IQN(munchausen=True),
    ],
)
def test_what_a_forbidden_action_is_worth_never_reaches_a_loss(agent):
    def loss(forbidden_output):
        torch.manual_seed(0)
        net = MLP((4,), 2, agent.readout, hidden=[8])
        net.action_mask = slice(2, 4)
        with torch.no_grad():  # a forbidden action's outputs
            last = net.head.values[-1]
            assert isinstance(last, nn.Linear)
            outputs = last.bias.view(2, -1)[1]
            outputs += forbidden_output * torch.arange(1.0, len(outputs) + 1)
        obs = torch.tensor([[0.3, -1.0, 1.0, 0.0]] * 3)
        action = torch.zeros(3, dtype=torch.int64)
        batch = Batch(obs, action, torch.ones(3), torch.tensor([0.9, 0.0, 0.5]), obs, torch.arange(3))
        torch.manual_seed(1)
        return agent.loss(net, net, batch)

    low, high = loss(0.0), loss(50.0)
    assert torch.equal(low.loss, high.loss)
    assert torch.equal(low.td_error, high.td_error)
    assert low.loss.isfinite().all()
