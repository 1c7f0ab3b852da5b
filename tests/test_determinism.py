"""The seed decides the weights and the curves; evaluating decides nothing."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from runs import assert_equal_runs, difference, metrics, run, weights

ENVS = {
    "cartpole": ["env=cartpole"],
    "an env that draws from NumPy's global generator": ["env=gym", "env.id=Trap/LegacyGlobalRng-v0"],
    "an env that draws from its own generator": ["env=gym", "env.id=Trap/SeededNoise-v0"],
    "a noisy network that samples quantiles": ["env=cartpole", "agent=iqn", "network.noisy=true"],
}


@pytest.fixture(scope="module", params=ENVS)
def env(request) -> list[str]:
    return ENVS[request.param]


@pytest.fixture(scope="module")
def one(env, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("determinism") / "one"
    run(folder, *env)
    return folder


def disturb_the_process() -> None:
    random.seed(77)
    np.random.seed(77)  # noqa: NPY002
    torch.manual_seed(77)
    torch.rand(5)


def test_the_same_seed_gives_the_same_run_wherever_in_the_process_it_comes(env, one, tmp_path):
    disturb_the_process()
    run(tmp_path / "other env", "env=cartpole", "seed=5", "total_env_steps=100")
    run(tmp_path / "again", *env)
    assert_equal_runs(one, tmp_path / "again")


def test_another_seed_gives_another_run(env, one, tmp_path):
    run(tmp_path / "other", *env, "seed=1")
    assert difference(weights(one), weights(tmp_path / "other")) is not None
    assert metrics(one) != metrics(tmp_path / "other")


@pytest.mark.parametrize(
    "often",
    [
        ["evaluation.interval=20", "evaluation.epsilon=0.5", "evaluation.episodes=5"],
        ["evaluation.interval=1000", "evaluation.num_envs=1"],
        ["evaluation.episodes=0"],
    ],
    ids=["in every round", "at the end alone", "never"],
)
def test_how_often_one_evaluates_does_not_change_the_weights(often, env, one, tmp_path):
    run(tmp_path / "other", *env, *often)
    assert difference(weights(one), weights(tmp_path / "other")) is None
    training = [row for row in metrics(one) if row["train/loss"]]
    assert [row for row in metrics(tmp_path / "other") if row["train/loss"]] == training


def test_points_and_kept_checkpoints_do_not_change_the_weights(one, env, tmp_path):
    run(tmp_path / "other", *env, "trainer.log_interval=1", "checkpoint.keep=3", "trainer.progress_bar=true")
    assert difference(weights(one), weights(tmp_path / "other")) is None


def test_a_run_leaves_the_threads_generators_to_their_next_user_in_the_same_state(env, tmp_path):
    states = []
    for name in ("one", "two"):
        disturb_the_process()
        run(tmp_path / name, *env, "total_env_steps=100", "evaluation.episodes=0")
        states.append((random.random(), float(np.random.random()), torch.rand(1)))  # noqa: NPY002
    assert difference(*states) is None
