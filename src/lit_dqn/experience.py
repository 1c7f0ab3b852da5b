"""The experience source: acts in the vector env, writes rows, keeps its own episode accounts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from lit_dqn.envs.action_mask import allowed
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.spaces import Array
from lit_dqn.errors import RunError
from lit_dqn.global_generators import seed_global_generators
from lit_dqn.replay.sampler import Sampler
from lit_dqn.schedules import Schedule
from lit_dqn.seeding import integer_seed, integer_seeds
from lit_dqn.types import QFunction

FLOAT32_MAX = float(np.finfo(np.float32).max)


class EpsilonGreedy:
    """Greedy actions, each env exploring on its own draw.

    Args:
        q_values: observations [N, *obs] -> values [N, A].
        num_actions: A >= 1.
        generator: draws for every env at every step, whatever epsilon is, so that epsilon shifts no stream.
        action_mask: where an observation says which actions it allows; others are not explored. None: all.
    """

    def __init__(
        self,
        q_values: QFunction,
        num_actions: int,
        generator: np.random.Generator,
        action_mask: slice | None = None,
    ) -> None:
        self.q_values, self.num_actions, self.generator = q_values, num_actions, generator
        self.action_mask = action_mask

    def __call__(self, obs: Array, epsilon: float) -> Array:
        """Observations [N, *obs] -> action indices [N] int64."""
        explore = self.generator.random(len(obs)) < epsilon
        action = self._random(obs)
        if not explore.all():
            greedy = self.q_values(torch.from_numpy(obs)).argmax(dim=1).numpy()
            action = np.where(explore, action, greedy)
        return action

    def _random(self, obs: Array) -> Array:
        if self.action_mask is None:
            return self.generator.integers(self.num_actions, size=len(obs))
        score = self.generator.random((len(obs), self.num_actions))
        action: Array = np.where(allowed(obs, self.action_mask), score, -1.0).argmax(axis=1)
        return action


class EpisodeAccounts:
    """Return and length of each env's running episode, from rewards and flags alone.

    Args:
        num_envs: N.
        gamma: of the discounted returns whose range is kept.
    """

    def __init__(self, num_envs: int, gamma: float = 1.0) -> None:
        self.gamma = gamma
        self.returns = np.zeros(num_envs)
        self.discounted = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        # Of finished episodes, from their first and from their last step.
        self.lowest, self.highest = float("inf"), float("-inf")

    def add(self, reward: Array, ended: Array) -> list[tuple[int, float, int]]:
        """Count one vector step; every env must have really stepped or have reward 0 and be at its start.

        Returns:
            (env, return, length) of the episodes that ended.
        """
        self.returns += reward
        self.discounted += self.gamma ** np.maximum(self.lengths, 0) * reward
        self.lengths += 1
        if not ended.any():
            return []
        known = np.concatenate([self.discounted[ended], reward[ended]])
        self.lowest, self.highest = min(self.lowest, known.min()), max(self.highest, known.max())
        done = [(int(i), float(self.returns[i]), int(self.lengths[i])) for i in np.flatnonzero(ended)]
        self.returns[ended] = self.discounted[ended] = 0.0
        # The autoreset row that follows is no env step: it brings the length from -1 to 0.
        self.lengths[ended] = -1
        return done

    def clear(self) -> None:
        """Forget the running episodes."""
        self.returns[:] = self.discounted[:] = 0.0
        self.lengths[:] = 0


def reset_seeds(envs: VectorEnv[Any, Any, Any], root: int, owner: str, *counters: int) -> Any:
    """What `envs.reset(seed=...)` takes: a seed per env where a list is accepted, else one int."""
    if hasattr(envs, "envs"):
        return integer_seeds(envs.num_envs, root, owner, *counters)
    return integer_seed(root, owner, *counters)


def check_finite(env_id: str, env_step: int, **fields: Array) -> None:
    """Refuse NaN, inf, and what becomes inf once it is stored as float32.

    Raises:
        RunError: names the env, the field, the copy and the env step.
    """
    for name, value in fields.items():
        if value.dtype.kind != "f":
            continue
        fine = np.abs(value) <= FLOAT32_MAX
        if not fine.all():
            copy = int(np.argwhere(~fine)[0, 0])
            raise RunError(
                f"env {env_id} (copy {copy}): its {name} is NaN or infinite as float32 "
                f"at env step {env_step}."
            )


class ExperienceSource:
    """Collects rows round by round.

    Args:
        envs: a vector env with NEXT_STEP autoreset, behind the border.
        env_id: for messages.
        replay: takes the rows.
        actor: chooses the actions.
        epsilon: exploration as a function of the env step.
        root_seed: seeds of resets are a function of (root seed, env step).
        stack: what the actor sees of the frames; rows hold single ones.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        env_id: str,
        replay: Sampler,
        actor: EpsilonGreedy,
        epsilon: Schedule,
        root_seed: int,
        stack: FrameStack,
    ) -> None:
        self.envs, self.env_id, self.replay = envs, env_id, replay
        self.actor, self.epsilon, self.root_seed, self.stack = actor, epsilon, root_seed, stack
        self.env_step = 0
        self.episodes = 0
        self.finished: list[tuple[float, int]] = []  # (return, length) since the last `take_finished`
        self.on_step: Callable[[int], None] = lambda _: None  # called with env_step after each vector step
        self._accounts = EpisodeAccounts(envs.num_envs, replay.buffer.gamma)
        self._needs_reset = np.zeros(envs.num_envs, dtype=bool)  # its next row is a reset row
        self._obs: Array | None = None  # None: the envs must be reset before the next step

    def collect(self, until: int) -> None:
        """Step until `env_step >= until`."""
        while self.env_step < until:
            self._step()

    def collect_startable(self, until: int) -> None:
        """Like `collect`, and on until the replay holds an eligible start."""
        self.collect(until)
        while not self.replay.can_sample():
            self._step()

    def _step(self) -> None:
        obs = self._reset() if self._obs is None else self._obs
        valid = ~self._needs_reset
        action = self.actor(self.stack.frames, self.epsilon(self.env_step))
        next_obs, reward, terminated, truncated, _ = self.envs.step(action)
        check_finite(self.env_id, self.env_step, observation=next_obs, reward=reward)
        ended = terminated | truncated
        self.replay.add(obs, action, reward, terminated, ended, valid)
        for _, episode_return, length in self._accounts.add(reward, ended):
            self.finished.append((episode_return, length))
            self.episodes += 1
        self.env_step += int(valid.sum())
        # A copy: it is stored after the next step, when a vector env may have overwritten it.
        self._obs, self._needs_reset = np.array(next_obs), ended
        self.stack.push(self._obs, first=~valid)
        self.on_step(self.env_step)

    def _reset(self) -> Array:
        # Here, not at the cut: a resumed process has drawn from them before it gets here.
        seed_global_generators(self.root_seed, self.env_step)
        seeds = reset_seeds(self.envs, self.root_seed, "train envs", self.env_step)
        obs: Array = np.array(self.envs.reset(seed=seeds)[0])
        check_finite(self.env_id, self.env_step, observation=obs)
        self._needs_reset = np.zeros_like(self._needs_reset)
        self._accounts.clear()
        self.stack.start(obs)
        return obs

    def cut(self) -> None:
        """End the running episodes here and reset before the next step; does nothing twice in a row.

        Envs are not saved in checkpoints. Cutting at one makes the continuing run and the resumed one go
        through the same seeded reset.
        """
        if self._obs is not None:
            self.replay.cut(self._obs)
            self._obs = None

    def take_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def returns_seen(self) -> tuple[float, float]:
        """Lowest and highest discounted return since this process began; (inf, -inf) before any."""
        return self._accounts.lowest, self._accounts.highest

    def state_dict(self) -> dict[str, Any]:
        """Valid after `cut` only: running episodes are not part of it."""
        assert self._obs is None, "cut() the episodes before saving"
        return {
            "env_step": self.env_step,
            "episodes": self.episodes,
            "finished": list(self.finished),
            "generator": self.actor.generator.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_step = state["env_step"]
        self.episodes = state["episodes"]
        self.finished = [(float(r), int(n)) for r, n in state["finished"]]
        self.actor.generator.bit_generator.state = state["generator"]
        self._obs = None
