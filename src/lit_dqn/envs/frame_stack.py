"""Stacks of frames while acting, by the rule that the replay reads them back by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from lit_dqn.envs.spaces import Array


class FrameStack:
    """The last k frames of each of N envs, oldest first; frames never come from an earlier episode.

    Args:
        count: k >= 1; with 1 there is no stack axis.
        padding: what stands before an episode's first frame: `zero`, or that `first` frame again.
    """

    def __init__(self, count: int = 1, padding: Literal["zero", "first"] = "zero") -> None:
        self.count, self.padding = count, padding
        self.frames: Array = np.empty(0)  # [N, k, *obs], or [N, *obs] with k = 1

    @classmethod
    def of(cls, buffer: Mapping[str, Any]) -> FrameStack:
        """The stack that a buffer's configuration asks for; one that has no such option stacks nothing."""
        return cls(buffer.get("frame_stack", 1), buffer.get("stack_padding", "zero"))

    def shape(self, obs_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what a network sees of one env."""
        return obs_shape if self.count == 1 else (self.count, *obs_shape)

    def start(self, obs: Array) -> None:
        """Every env begins an episode with its frame in `obs` [N, *obs]."""
        if self.count > 1:
            self.frames = np.zeros((len(obs), self.count, *obs.shape[1:]), dtype=obs.dtype)
        self.push(obs, np.ones(len(obs), dtype=bool))

    def push(self, obs: Array, first: Array) -> None:
        """The next frames [N, *obs]; `first` [N] bool: the frame begins an episode."""
        if self.count == 1:
            self.frames = obs
            return
        self.frames[:, :-1] = self.frames[:, 1:]
        self.frames[:, -1] = obs
        for env in np.flatnonzero(first):
            self.frames[env, :-1] = 0 if self.padding == "zero" else obs[env]
