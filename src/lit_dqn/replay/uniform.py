"""Uniform experience replay: Lin (1992), doi:10.1007/BF00992699; Mnih et al. (2015)."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from annotated_types import Ge
from pydantic import ConfigDict, validate_call
from torch import Tensor

from lit_dqn.replay.buffer import Array, ReplayBuffer
from lit_dqn.types import Batch

Count = Annotated[int, Ge(1)]


class UniformReplay:
    """Every eligible start is equally likely, with replacement.

    Args:
        obs_shape, obs_dtype, num_envs, gamma, capacity, n_step: see `ReplayBuffer`.
        seed: of the sampler's own generator.
        batch_size: transitions per minibatch, >= 1.
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
    ) -> None:
        self.buffer = ReplayBuffer(
            obs_shape, obs_dtype, num_envs, capacity=capacity, n_step=n_step, gamma=gamma
        )
        self.capacity, self.batch_size = capacity, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        """Rows stored, over all envs."""
        return len(self.buffer) * self.buffer.num_envs

    def add(
        self, obs: Array, action: Array, reward: Array, terminated: Array, boundary: Array, valid: Array
    ) -> None:
        """See `ReplayBuffer.add`."""
        self.buffer.add(obs, action, reward, terminated, boundary, valid)

    def cut(self, obs: Array) -> None:
        """See `ReplayBuffer.cut`."""
        self.buffer.cut(obs)

    def can_sample(self) -> bool:
        """Whether at least one eligible start is stored; looks at every row."""
        every = self.buffer.slot_of(torch.arange(self.buffer.starts()))
        return bool(self.buffer.eligible(every).any())

    def sample(self, updates: int) -> Batch:
        """`updates` minibatches in one gather: [updates, batch_size, ...]."""
        slot = self._draw(updates * self.batch_size)
        shape = (updates, self.batch_size)
        columns: dict[str, Any] = {
            name: column.view(*shape, *column.shape[1:])
            for name, column in self.buffer.transitions(slot).items()
        }
        return Batch(**columns, index=slot.view(shape))

    def _draw(self, count: int) -> Tensor:
        slot = self._propose(count)
        wrong = (~self.buffer.eligible(slot)).nonzero().squeeze(1)
        while len(wrong):
            again = self._propose(len(wrong))
            slot[wrong] = again
            wrong = wrong[~self.buffer.eligible(again)]
        return slot

    def _propose(self, count: int) -> Tensor:
        return self.buffer.slot_of(torch.randint(self.buffer.starts(), (count,), generator=self.generator))

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Uniform replay has no priorities."""

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": self.buffer.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["buffer"])
        self.generator.set_state(state["generator"])
