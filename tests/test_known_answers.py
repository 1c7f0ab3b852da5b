"""Tasks whose values are known exactly: what `load` returns after training must be them."""

from __future__ import annotations

import numpy as np
import pytest

import trap_envs
from lit_dqn import compose, load, train

GAMMA = 0.9
QUICK = [
    "env=gym",
    f"gamma={GAMMA}",
    "total_env_steps=1000",
    "experience.learning_starts=200",
    "agent.target_update_interval=25",
    "network.hidden=[32]",
    "evaluation.episodes=0",
    "trainer.progress_bar=false",
    "logger.tensorboard=false",
]
ONE = np.ones((1, 1), dtype=np.float32)


def trained(tmp_path, env_id: str, *overrides: str):
    train(compose([*QUICK, f"env.id=trap_envs:Trap/{env_id}-v0", *overrides]), tmp_path)
    return load(tmp_path / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_time_limit_is_no_ending_so_keeping_is_worth_ten_and_chosen(tmp_path, n_step):
    policy = trained(tmp_path, "KeepOrCash", f"buffer.n_step={n_step}")
    np.testing.assert_allclose(policy.q_values(ONE)[0], trap_envs.KeepOrCashEnv().q_star(GAMMA), atol=1.0)
    assert policy.act(ONE).tolist() == [1]


@pytest.mark.parametrize("switches", [(), ("agent.double=true", "network.dueling=true", "buffer.n_step=2")])
def test_a_cut_episode_bootstraps_from_its_true_last_observation(tmp_path, switches):
    policy = trained(tmp_path, "KeepOnly", *switches)
    np.testing.assert_allclose(policy.q_values(ONE)[0], trap_envs.KeepOnlyEnv().q_star(GAMMA), atol=1.0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_one_step_episodes_reach_the_replay_and_nothing_is_bootstrapped(tmp_path, n_step):
    policy = trained(tmp_path, "OneStep", f"buffer.n_step={n_step}")
    np.testing.assert_allclose(policy.q_values(ONE * 0)[0], [0.0, 1.0], atol=0.1)


@pytest.mark.parametrize(("env_id", "states"), [("Chain", np.eye(5)[:4]), ("ChainDiscrete", np.arange(4))])
def test_the_corridor_is_solved_exactly_from_vectors_and_from_a_discrete_space(tmp_path, env_id, states):
    policy = trained(tmp_path, env_id)
    expected = trap_envs.ChainEnv().q_star(GAMMA)[:4]
    np.testing.assert_allclose(policy.q_values(states), expected, atol=0.1)
    assert policy.act(states).tolist() == [1, 1, 1, 1]


FAMILY = {
    "c51": ["agent.v_min=-1", "agent.v_max=11", "agent.num_atoms=25"],
    "qrdqn": ["agent.num_quantiles=5"],
    "iqn": [],
}
"""Agents beside dqn, with supports that cover the values."""


@pytest.mark.parametrize("agent", FAMILY)
def test_every_agent_finds_the_exact_values(tmp_path, agent):
    options = [f"agent={agent}", *FAMILY[agent], "total_env_steps=1200", "optimizer.lr=3e-3"]
    policy = trained(tmp_path / "keep", "KeepOnly", *options)
    np.testing.assert_allclose(policy.q_values(ONE)[0], trap_envs.KeepOnlyEnv().q_star(GAMMA), atol=1.0)
    policy = trained(tmp_path / "chain", "Chain", *options)
    np.testing.assert_allclose(
        policy.q_values(np.eye(5)[:4]), trap_envs.ChainEnv().q_star(GAMMA)[:4], atol=0.15
    )
    policy = trained(tmp_path / "start", "DiscreteStart1", *options)
    states = np.array([[t / 4, 1.0] for t in range(4)])
    best = np.array([sum(GAMMA**k for k in range(4 - t)) for t in range(4)])
    np.testing.assert_allclose(policy.q_values(states)[:, 2], best, atol=0.4)


def test_actions_numbered_from_one_are_learnt_and_given_in_the_envs_numbering(tmp_path):
    policy = trained(tmp_path, "DiscreteStart1")
    states = np.array([[t / 4, 1.0] for t in range(4)])
    best = np.array([sum(GAMMA**k for k in range(4 - t)) for t in range(4)])
    np.testing.assert_allclose(policy.q_values(states)[:, 2], best, atol=0.3)
    assert policy.act(states).tolist() == [3, 3, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["dqn", "c51"])
def test_cartpole_is_learnt_with_the_tuned_recipe(agent, tmp_path):
    words = ["env=cartpole", f"agent={agent}", "seed=0", "evaluation.episodes=50"]
    result = train(compose([*words, "trainer.progress_bar=false"]), tmp_path)
    assert result["eval_return_mean"] >= 475
    assert result["random_return_mean"] < 50
