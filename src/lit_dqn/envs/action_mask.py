"""Action masks: which actions an observation allows.

A Dict observation with a part `action_mask`, one entry per action (above 0: allowed), says so by itself; an
env that puts it into `info` is wrapped. The mask is a piece of the flattened observation, so that it is
stored, drawn and resumed with it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lit_dqn.errors import RunError, UserError

KEY = "action_mask"


class InfoActionMask(gym.Wrapper[Any, Any, Any, Any]):
    """Makes `info["action_mask"]` a part of the observation: {"action_mask": ..., "observation": ...}.

    Type `env.wrappers=[lit_dqn.envs.action_mask.InfoActionMask]`.

    Raises:
        RunError: an info has no mask, or one of another size.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, spaces.Discrete)
        self._count = int(env.action_space.n)
        parts = {KEY: spaces.MultiBinary(self._count), "observation": env.observation_space}
        self.observation_space = spaces.Dict(parts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first observation with its mask."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(obs, info), info

    def step(self, action: int) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """The next observation with its mask."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(obs, info), reward, terminated, truncated, info

    def _with_mask(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        if KEY not in info:
            raise RunError(f"InfoActionMask: an info of the env has no {KEY!r}, it has {sorted(info)}.")
        mask = np.asarray(info[KEY])
        if mask.shape != (self._count,):
            raise RunError(f"InfoActionMask: {KEY} must have the shape ({self._count},), got {mask.shape}.")
        return {KEY: (mask > 0).astype(np.int8), "observation": obs}


def mask_slice(space: gym.Space[Any], num_actions: int) -> slice | None:
    """Where the mask lies in the flattened observation; None: every action is always allowed.

    Raises:
        UserError: there is a mask, but not one entry per action.
    """
    if not isinstance(space, spaces.Dict) or KEY not in space.spaces:
        return None
    before = 0
    for name, part in space.spaces.items():
        if name == KEY:
            break
        before += spaces.flatdim(part)
    shape = space.spaces[KEY].shape
    if shape != (num_actions,):
        raise UserError(f"its {KEY} has the shape {shape}, but there are {num_actions} actions.")
    return slice(before, before + num_actions)


def allowed(obs: Any, where: slice) -> Any:
    """Observations [N, D] or stacked ones [N, k, D] -> which actions are allowed, [N, A] bool.

    Takes an array or a tensor and gives the same kind.

    Where a mask allows none, as some envs' do at the end of an episode, it counts for nothing.
    """
    latest = obs if obs.ndim == 2 else obs[:, -1]
    mask = latest[:, where] > 0
    return mask | ~mask.any(axis=1, keepdims=True)
