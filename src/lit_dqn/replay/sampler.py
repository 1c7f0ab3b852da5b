"""What every replay shares: rows go into a `ReplayBuffer`, a round's minibatches come out in one gather."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from pydantic import ConfigDict, validate_call
from torch import Tensor

from lit_dqn.errors import UserError
from lit_dqn.replay.buffer import ReplayBuffer, StackPadding
from lit_dqn.replay.memory import check_memory
from lit_dqn.replay.ring import Array
from lit_dqn.types import Batch

Count = Annotated[int, Ge(1)]
RewardClip = Annotated[float, Gt(0)] | None
Device = Literal["cpu", "cuda", "auto"]


class Sampler(ABC):
    """Stores rows and says which starts are drawn.

    Args:
        obs_shape, obs_dtype, num_envs, gamma: see `ReplayBuffer`.
        seed: of the sampler's own generator.
        batch_size: transitions per minibatch, >= 1.
        device: `cpu`, `cuda`, or `auto`: `cuda` where there is one.
        allow_overcommit: take more memory than is free now.
        capacity, n_step, frame_stack, stack_padding, reward_clip: see `ReplayBuffer`.

    Raises:
        UserError: the capacity is too small, the memory is not free, or there is no such device.
    """

    OWN_BYTES = 0  # kept per row beside the row itself

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
        where = device_named(device)
        row = math.prod(obs_shape) * obs_dtype.itemsize + ReplayBuffer.OTHER_BYTES + self.OWN_BYTES
        check_memory(row * capacity, capacity, where, allow_overcommit)
        self.buffer = ReplayBuffer(
            obs_shape,
            obs_dtype,
            num_envs,
            capacity=capacity,
            n_step=n_step,
            gamma=gamma,
            frame_stack=frame_stack,
            stack_padding=stack_padding,
            reward_clip=reward_clip,
            device=where,
        )
        self.capacity, self.batch_size = capacity, batch_size
        # On the CPU, so that a seed draws the same on every device.
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
        every = torch.arange(*self.buffer.candidates(), device=self.buffer.device)
        return bool(self.buffer.eligible(every).any())

    def sample(self, updates: int, env_step: int = 0) -> Batch:
        """`updates` minibatches in one gather: [updates, batch_size, ...].

        Args:
            env_step: where the run is, for schedules.
        """
        flat, weight = self._draw(updates, env_step)
        index = flat.view(updates, self.batch_size)
        columns: dict[str, Any] = self.buffer.transitions(index)
        return Batch(**columns, index=index, weight=weight)

    @abstractmethod
    def _draw(self, updates: int, env_step: int) -> tuple[Tensor, Tensor | None]:
        """Indices [updates x batch_size] of eligible starts, and their weights [updates, batch_size]."""

    @abstractmethod
    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Take a round's priorities [K, B] >= 0 of the rows `index` [K, B]."""

    def curves(self, env_step: int) -> dict[str, float]:
        """Values for the training curves."""
        return {"buffer/size": len(self)}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the rows, which `ReplayBuffer.export_rows` gives."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Comes after the rows are back."""
        self.generator.set_state(state["generator"])


def device_named(name: str) -> torch.device:
    """The device of `buffer.device`.

    Raises:
        UserError: there is no GPU.
    """
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise UserError("buffer.device=cuda: no GPU is available; type buffer.device=cpu or auto.")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
