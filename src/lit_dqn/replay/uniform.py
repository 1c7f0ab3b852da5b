"""Uniform experience replay: Lin (1992), doi:10.1007/BF00992699; Mnih et al. (2015)."""

from __future__ import annotations

import torch
from pydantic import ConfigDict, validate_call
from torch import Tensor

from lit_dqn.replay.buffer import StackPadding
from lit_dqn.replay.sampler import Count, Device, RewardClip, Sampler


class UniformReplay(Sampler):
    """Every eligible start is equally likely, with replacement.

    Args:
        obs_shape, obs_dtype, num_envs, gamma, seed: and the options, see `Sampler`.
    """

    @validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    def __init__(
        self,
        obs_shape: tuple[int, ...],
        obs_dtype: torch.dtype,
        num_envs: int,
        gamma: float,
        seed: int,
        *,
        capacity: Count = 100_000,
        batch_size: Count = 64,
        n_step: Count = 1,
        frame_stack: Count = 1,
        stack_padding: StackPadding = "zero",
        reward_clip: RewardClip = None,
        device: Device = "cpu",
        allow_overcommit: bool = False,
    ) -> None:
        super().__init__(
            obs_shape,
            obs_dtype,
            num_envs,
            gamma,
            seed,
            capacity=capacity,
            batch_size=batch_size,
            n_step=n_step,
            frame_stack=frame_stack,
            stack_padding=stack_padding,
            reward_clip=reward_clip,
            device=device,
            allow_overcommit=allow_overcommit,
        )

    def _draw(self, updates: int, env_step: int) -> tuple[Tensor, None]:
        index = self._propose(updates * self.batch_size)
        wrong = (~self.buffer.eligible(index)).nonzero().squeeze(1)
        while len(wrong):
            again = self._propose(len(wrong))
            index[wrong] = again
            wrong = wrong[~self.buffer.eligible(again)]
        return index, None

    def _propose(self, count: int) -> Tensor:
        drawn = torch.randint(*self.buffer.candidates(), (count,), generator=self.generator)
        return drawn.to(self.buffer.device)

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Uniform replay has no priorities."""
