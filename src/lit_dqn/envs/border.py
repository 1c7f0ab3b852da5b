"""The border: one wrapper around every single env, where its habits become ours."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lit_dqn.envs.spaces import Array, encode, encoded_space
from lit_dqn.errors import RunError


class Border(gym.Wrapper[Any, Any, Any, Any]):
    """Actions are 0 .. n-1, rewards are floats, observations are fresh arrays of a checked shape.

    The env gets `action + start` as a Python int, whatever the action space's `start`; a reward may be any
    scalar (int, bool, NumPy scalar, array with one element); info is dropped, since a vector env would
    have to merge whatever keys an env makes up.

    Raises:
        RunError: an observation or a reward that does not fit, named with the env and the field.
    """

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._env_id = env_id
        self._raw_space = env.observation_space
        assert isinstance(env.action_space, spaces.Discrete)
        self._start = int(env.action_space.start)
        self.action_space = spaces.Discrete(int(env.action_space.n))
        self._encoded = encoded_space(self._raw_space)
        self.observation_space = self._encoded

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """The first observation [*encoded]; info is empty."""
        result: Any = self.env.reset(seed=seed, options=options)
        try:
            obs, _ = result
        except (TypeError, ValueError) as error:
            raise RunError(self._old_interface("reset", "(obs, info)")) from error
        return self._observation(obs), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take the action index 0 .. n-1; info is empty."""
        result: Any = self.env.step(int(action) + self._start)
        try:
            obs, reward, terminated, truncated, _ = result
        except (TypeError, ValueError) as error:
            expected = "(obs, reward, terminated, truncated, info)"
            raise RunError(self._old_interface("step", expected)) from error
        return self._observation(obs), self._scalar(reward), bool(terminated), bool(truncated), {}

    def _old_interface(self, call: str, expected: str) -> str:
        return (
            f"env {self._env_id}: its {call}() must return {expected}; "
            "the old interface of Gym is not supported."
        )

    def _observation(self, obs: Any) -> Array:
        try:
            return encode(self._raw_space, self._encoded, obs)
        except (ValueError, TypeError) as error:
            raise RunError(f"env {self._env_id}: its observation {error}.") from error

    def _scalar(self, reward: Any) -> float:
        if isinstance(reward, float):
            return reward
        try:
            return float(np.asarray(reward).item())
        except (ValueError, TypeError) as error:
            raise RunError(f"env {self._env_id}: its reward must be one number, got {reward!r}.") from error
