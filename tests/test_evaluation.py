"""Evaluation: complete episodes, none preferred, repeatable; and what is kept of its scores."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lit_dqn.callbacks.common import Milestones
from lit_dqn.checkpoint_file import read_checkpoint
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import GymEnvs
from lit_dqn.errors import RunError
from lit_dqn.evaluation import Evaluator
from lit_dqn.types import EvaluationResult
from runs import last, load, metrics, result, run


class Unequal(gym.Env[Any, Any]):
    """Copy k (by the order they are made in) plays episodes of k + 1 steps; each is worth its length."""

    made = 0

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 100.0, shape=(1,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        self.length = Unequal.made + 1
        Unequal.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == self.length, False, {}


@pytest.fixture
def unequal() -> GymEnvs:
    if "Tests/Unequal-v0" not in gym.registry:
        gym.register("Tests/Unequal-v0", entry_point=Unequal)
    env = GymEnvs(id="Tests/Unequal-v0")
    Unequal.made = 0
    return env


def zeros(obs: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(obs), 2)


def evaluator(env: GymEnvs, **values: Any) -> Evaluator:
    defaults = {
        "episodes": 6,
        "num_envs": 3,
        "epsilon": 0.0,
        "max_episode_steps": 1000,
        "stack": FrameStack(),
    }
    return Evaluator(env, values.pop("root_seed", 0), **(defaults | values))


def test_every_env_plays_its_quota_however_short_its_episodes_are(unequal):
    played = evaluator(unequal, episodes=6, num_envs=3)(zeros, 0)
    assert played.lengths == [1, 1, 2, 2, 3, 3]
    assert played.returns == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]


def test_quotas_differ_by_at_most_one(unequal):
    assert evaluator(unequal, episodes=5, num_envs=3)(zeros, 0).lengths == [1, 1, 2, 2, 3]


def test_no_more_envs_are_made_than_episodes_are_played(unequal):
    assert evaluator(unequal, episodes=2, num_envs=10)(zeros, 0).lengths == [1, 2]
    assert Unequal.made == 2


def test_episodes_are_cut_at_the_limit_and_counted(unequal):
    played = evaluator(unequal, max_episode_steps=2)(zeros, 0)
    assert played.lengths == [1, 1, 2, 2, 2, 2]
    assert played.cut == 2  # the third env's two; the second's end by themselves at the limit


def test_an_env_that_never_ends_is_cut():
    env = GymEnvs(id="trap_envs:Trap/Endless-v0")
    played = evaluator(env, max_episode_steps=30)(zeros, 0)
    assert played.lengths == [30] * 6
    assert played.cut == 6


def test_an_envs_own_time_limit_is_no_cut():
    played = evaluator(GymEnvs(id="CartPole-v1", max_episode_steps=5), episodes=4)(zeros, 0)
    assert played.lengths == [5] * 4
    assert played.cut == 0


def test_the_limit_of_an_evaluation_does_not_lengthen_the_envs_own():
    env = GymEnvs(id="CartPole-v1", max_episode_steps=5)
    assert evaluator(env, max_episode_steps=100)(zeros, 0).lengths == [5] * 6


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Trap/SeededNoise-v0", "Trap/LegacyGlobalRng-v0"])
def test_seeds_are_a_function_of_root_seed_and_env_step_alone(env_id, monkeypatch):
    env = GymEnvs(id=env_id)
    seen: list[torch.Tensor] = []

    def noting(obs: torch.Tensor) -> torch.Tensor:
        seen.append(obs.clone())
        return torch.zeros(len(obs), 2)

    def observations(root_seed: int, env_step: int) -> torch.Tensor:
        seen.clear()
        evaluator(env, root_seed=root_seed)(noting, env_step)
        return torch.stack(seen)

    first = observations(0, 100)
    np.random.seed(3)  # noqa: NPY002
    assert torch.equal(observations(0, 100), first)
    assert not torch.equal(observations(0, 200)[:1], first[:1])
    assert not torch.equal(observations(1, 100)[:1], first[:1])


def test_the_envs_of_one_evaluation_differ():
    seen: list[torch.Tensor] = []

    def noting(obs: torch.Tensor) -> torch.Tensor:
        seen.append(obs.clone())
        return torch.zeros(len(obs), 2)

    evaluator(GymEnvs(id="Trap/SeededNoise-v0"))(noting, 0)
    assert len(seen[0].unique(dim=0)) == 3


def test_epsilon_explores_and_zero_does_not():
    env = GymEnvs(id="Trap/Endless-v0")  # a reward for action 1
    assert evaluator(env, max_episode_steps=50)(zeros, 0).return_mean == 0.0
    half = evaluator(env, max_episode_steps=50, epsilon=1.0)(zeros, 0).return_mean
    assert 10 < half < 40
    assert evaluator(env, max_episode_steps=50).random_baseline().return_mean == pytest.approx(25, abs=10)


def test_a_broken_env_is_named():
    with pytest.raises(RunError, match="Trap/NanObs-v0"):
        evaluator(GymEnvs(id="Trap/NanObs-v0"), episodes=12)(zeros, 0)


def test_milestones_are_reached_once_however_many_are_passed():
    milestones = Milestones(100)
    milestones.start_at(100)
    assert [milestones.reached(n) for n in (150, 200, 201, 450, 499, 500)] == [
        False,
        True,
        False,
        True,
        False,
        True,
    ]
    assert not Milestones(None).reached(100)


@pytest.fixture
def scores(monkeypatch):
    """Evaluations with given scores."""

    def install(*means: float) -> list[int]:
        at: list[int] = []

        def give(self: Evaluator, q_values: Any, env_step: int) -> EvaluationResult:
            at.append(env_step)
            return EvaluationResult(returns=[means[len(at) - 1]] * 2, lengths=[1, 1])

        monkeypatch.setattr(Evaluator, "__call__", give)
        return at

    return install


ONE_ENV = ["env=cartpole", "experience.num_envs=1", "evaluation.interval=100", "checkpoint.interval=200"]


@pytest.mark.parametrize(
    ("means", "best"),
    [((1, 5, 3, 2), 1), ((5, 5, 5, 5), 0), ((-3, -2, -1, 0), 3), ((-1, -2, -3, -4), 0)],
)
def test_the_best_is_the_first_of_the_highest_scores(means, best, scores, tmp_path):
    at = scores(*means)
    values = run(tmp_path / "run", *ONE_ENV)
    assert at == [100, 200, 300, 400]
    assert values["best_eval_return_mean"] == means[best]
    assert values["eval_return_mean"] == means[-1]
    assert load(tmp_path / "run" / "checkpoints" / "best.ckpt")["learner"]["env_step"] == at[best]


def test_the_best_keeps_the_weights_of_its_moment(scores, tmp_path):
    scores(1, 5, 3, 2)
    run(tmp_path / "run", *ONE_ENV)
    run(tmp_path / "shorter", *ONE_ENV, "total_env_steps=200", "evaluation.episodes=0")
    best = load(tmp_path / "run" / "checkpoints" / "best.ckpt")["state_dict"]
    then = load(last(tmp_path / "shorter"))["state_dict"]
    assert all(torch.equal(best[name], then[name]) for name in best)


def test_the_best_is_kept_across_a_resume(scores, tmp_path):
    scores(1, 5, 3, 2)
    run(tmp_path / "run", *ONE_ENV, "total_env_steps=200")
    (tmp_path / "run" / "checkpoints" / "best.ckpt").unlink()
    values = run(tmp_path / "run", *ONE_ENV, f"resume={last(tmp_path / 'run')}")
    assert values["best_eval_return_mean"] == 5
    assert load(tmp_path / "run" / "checkpoints" / "best.ckpt")["learner"]["env_step"] == 200


def test_a_good_enough_score_ends_the_run_early_and_finished(scores, tmp_path):
    at = scores(1, 5, 3, 2)
    values = run(tmp_path / "run", *ONE_ENV, "evaluation.interval=60", "evaluation.stop_at_return=4.5")
    assert at == [60, 120]
    assert values["finished"] is True
    assert values["env_steps"] == 120
    checkpoint = read_checkpoint(last(tmp_path / "run"))
    assert checkpoint["learner"]["env_step"] == 120
    assert checkpoint["callbacks"]["Evaluation"]["scores"]["last_env_step"] == 120


def test_a_run_that_ended_early_can_go_on(scores, tmp_path):
    at = scores(1, 5, 3, 2, 1, 0)
    run(tmp_path / "run", *ONE_ENV, "evaluation.stop_at_return=4.5")
    values = run(tmp_path / "run", *ONE_ENV, f"resume={last(tmp_path / 'run')}")
    assert at == [100, 200, 300, 400]
    assert values["env_steps"] == 400


def test_the_random_baseline_is_measured_once_and_kept_across_a_resume(monkeypatch, tmp_path):
    calls: list[float] = []

    def baseline(self: Evaluator) -> EvaluationResult:
        calls.append(7.0 + len(calls))
        return EvaluationResult(returns=[calls[-1]], lengths=[1])

    monkeypatch.setattr(Evaluator, "random_baseline", baseline)
    run(tmp_path / "run", *ONE_ENV, "total_env_steps=200")
    values = run(tmp_path / "run", *ONE_ENV, f"resume={last(tmp_path / 'run')}")
    assert calls == [7.0]
    assert values["random_return_mean"] == 7.0
    evaluations = [row for row in metrics(tmp_path / "run") if row["eval/return_mean"]]
    assert [row["eval/random_return"] for row in evaluations] == ["7.0"] * 4


def test_the_random_baseline_can_be_off(tmp_path):
    values = run(tmp_path / "run", *ONE_ENV, "evaluation.random_baseline=false", "total_env_steps=100")
    assert values["random_return_mean"] is None
    assert metrics(tmp_path / "run")[-1]["eval/random_return"] == ""


def test_without_evaluation_nothing_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(Evaluator, "_play", lambda *_: 1 / 0)
    values = run(tmp_path / "run", *ONE_ENV, "evaluation.episodes=0")
    names = ("eval_return_mean", "eval_return_std", "eval_episodes", "best_eval_return_mean")
    assert [values[name] for name in (*names, "random_return_mean")] == [None] * 5
    assert {p.name for p in last(tmp_path / "run").parent.iterdir()} == {"last.ckpt", "replay"}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == values


def test_an_evaluation_writes_its_result_at_once(scores, monkeypatch, tmp_path):
    scores(1, 5, 3, 2)
    from lit_dqn.callbacks.checkpoints import Checkpoints

    seen = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, trainer: seen.append(result(tmp_path / "run")))
    run(tmp_path / "run", *ONE_ENV)
    assert [(r["eval_return_mean"], r["finished"], r["env_steps"]) for r in seen] == [
        (5, False, 200),
        (2, False, 400),
    ]


def test_an_endless_env_trains_and_is_evaluated(tmp_path):
    values = run(tmp_path / "run", "env=gym", "env.id=Trap/Endless-v0")
    assert values["eval_cut_episodes"] == values["eval_episodes"] == 2
    assert values["episodes"] == 0
    assert all(row["episode/return"] == "" for row in metrics(tmp_path / "run"))
