"""Evaluation: complete episodes in envs of its own; it changes nothing in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import close_quietly
from lit_dqn.experience import EpisodeAccounts, EpsilonGreedy, check_finite, reset_seeds
from lit_dqn.global_generators import own_global_generators
from lit_dqn.seeding import integer_seed, numpy_generator
from lit_dqn.types import EvaluationResult, QFunction


class EnvFactory(Protocol):
    """What the evaluator needs of an env."""

    id: str
    time_limit: int | None
    action_mask: slice | None

    @property
    def num_actions(self) -> int: ...

    def make(self, num_envs: int, time_limit: int | None = None) -> VectorEnv[Any, Any, Any]: ...


class Evaluator:
    """Plays a fixed number of complete episodes.

    Every env has a quota fixed beforehand (they differ by at most one), so that short episodes are not
    counted more often than long ones. The envs are made anew each time and their seeds are a function of
    (root seed, env step): an evaluation depends on nothing but the weights and the env step.

    Args:
        env: makes the envs.
        root_seed: the run's seed.
        episodes: episodes in all, >= 1.
        num_envs: envs at most; min(num_envs, episodes) are used.
        epsilon: exploration while evaluating, in [0, 1].
        max_episode_steps: env steps after which an episode is cut and counted as cut, >= 1.
        stack: what the policy sees of the frames.
    """

    def __init__(
        self,
        env: EnvFactory,
        root_seed: int,
        *,
        episodes: int,
        num_envs: int,
        epsilon: float,
        max_episode_steps: int,
        stack: FrameStack,
    ) -> None:
        self.env, self.root_seed, self.stack = env, root_seed, stack
        self.episodes, self.num_envs, self.epsilon = episodes, min(num_envs, episodes), epsilon
        cuts = env.time_limit is None or env.time_limit > max_episode_steps
        self.cut_at = max_episode_steps if cuts else None
        self.on_step: Callable[[int], None] = lambda _: None  # called with the episodes done so far

    def __call__(self, q_values: QFunction, env_step: int) -> EvaluationResult:
        """Evaluate greedy actions (but for `epsilon`) at this env step."""
        return self._play("evaluation", q_values, self.epsilon, env_step)

    def random_baseline(self) -> EvaluationResult:
        """The same protocol with uniformly random actions."""

        def no_values(obs: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(obs), self.env.num_actions)

        return self._play("random baseline", no_values, 1.0, 0)

    def _play(self, owner: str, q_values: QFunction, epsilon: float, env_step: int) -> EvaluationResult:
        generator = numpy_generator(self.root_seed, f"{owner} actions", env_step)
        actor = EpsilonGreedy(q_values, self.env.num_actions, generator, self.env.action_mask)
        with own_global_generators(integer_seed(self.root_seed, f"{owner} global generators", env_step)):
            envs = self.env.make(self.num_envs, self.cut_at)
            try:
                obs, _ = envs.reset(seed=reset_seeds(envs, self.root_seed, f"{owner} envs", env_step))
                check_finite(self.env.id, env_step, observation=obs)
                return self._episodes(envs, obs, actor, epsilon, env_step)
            finally:
                close_quietly(envs)

    def _episodes(
        self, envs: VectorEnv[Any, Any, Any], obs: Any, actor: EpsilonGreedy, epsilon: float, env_step: int
    ) -> EvaluationResult:
        quota = [
            self.episodes // self.num_envs + (i < self.episodes % self.num_envs) for i in range(self.num_envs)
        ]
        played: list[list[tuple[float, int, bool]]] = [[] for _ in quota]
        accounts = EpisodeAccounts(self.num_envs)
        missing = self.episodes
        self.stack.start(obs)
        over = np.zeros(self.num_envs, dtype=bool)  # its next step is the reset
        while missing:
            obs, reward, terminated, truncated, _ = envs.step(actor(self.stack.frames, epsilon))
            check_finite(self.env.id, env_step, observation=obs, reward=reward)
            for i, episode_return, length in accounts.add(reward, terminated | truncated):
                if len(played[i]) < quota[i]:
                    cut = length == self.cut_at and not terminated[i]
                    played[i].append((episode_return, length, cut))
                    missing -= 1
            self.stack.push(obs, first=over)
            over = terminated | truncated
            self.on_step(self.episodes - missing)
        flat = [episode for episodes in played for episode in episodes]
        return EvaluationResult(
            returns=[e[0] for e in flat], lengths=[e[1] for e in flat], cut=sum(e[2] for e in flat)
        )
