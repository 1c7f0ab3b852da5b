"""The ring of rows, and how transitions are read out of it.

Invariant (design of the whole replay). Rows are stored exactly as the vector env emits them, time-major
[T, N]: row t of env n holds the observation *before* the action, the action, the reward and the flags.
Gymnasium's NEXT_STEP autoreset emits, after an ending, one extra row whose observation is the true last
one and whose action is ignored; it is stored with `valid = False` and is never a start. Therefore the
successor's observation is always the next row's, every observation is stored once, and a truncated
episode bootstraps from its true last observation without a special case.

A *start* is eligible when its row is valid and its window of up to n steps, which stops at the first
ending, is followed by a written row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lit_dqn.errors import UserError

Array = NDArray[Any]


class ReplayBuffer:
    """Bounded, preallocated storage that drops the oldest rows.

    Args:
        obs_shape: shape of one observation.
        obs_dtype: torch.uint8 or torch.float32.
        num_envs: N, rows written per time step.
        capacity: rows in all, >= (n_step + 3) x num_envs; T = capacity // num_envs.
        n_step: rewards summed per transition, >= 1.
        gamma: discount per env step, in [0, 1].

    Raises:
        UserError: `capacity` is too small to hold one window per env.
    """

    COLUMNS = ("obs", "action", "reward", "terminated", "boundary", "valid")

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        obs_dtype: torch.dtype,
        num_envs: int,
        *,
        capacity: int,
        n_step: int,
        gamma: float,
    ) -> None:
        # A window of n rows, its successor, and up to two invalid rows in a row (an ending, then a cut).
        least = (n_step + 3) * num_envs
        if capacity < least:
            raise UserError(
                f"buffer.capacity must be at least (n_step + 3) x num_envs = {least}, got {capacity}."
            )
        self.num_envs, self.n_step, self.gamma = num_envs, n_step, gamma
        self.length = capacity // num_envs  # T
        shape = (self.length, num_envs)
        self.obs = torch.zeros((*shape, *obs_shape), dtype=obs_dtype)
        self.action = torch.zeros(shape, dtype=torch.int32)
        self.reward = torch.zeros(shape, dtype=torch.float32)
        self.terminated = torch.zeros(shape, dtype=torch.bool)  # stop bootstrapping here
        self.boundary = torch.zeros(shape, dtype=torch.bool)  # the episode ends here
        self.valid = torch.zeros(shape, dtype=torch.bool)  # may be a start
        self.rows_added = 0  # time steps ever written; row number r is in slot r % T
        self._first = 0  # no row before this number is stored: imported rows need not begin at 0
        columns: dict[str, Tensor] = {name: getattr(self, name) for name in self.COLUMNS}
        self._write = {name: column.numpy() for name, column in columns.items()}
        self._read = {name: column.flatten(0, 1) for name, column in columns.items()}  # [T * N, ...]

    def __len__(self) -> int:
        """Time steps stored, <= T."""
        return self.rows_added - self.oldest

    @property
    def oldest(self) -> int:
        """Number of the oldest row stored."""
        return max(self._first, self.rows_added - self.length)

    def add(
        self, obs: Array, action: Array, reward: Array, terminated: Array, boundary: Array, valid: Array
    ) -> None:
        """Write one time step; every argument is [N, ...] and is copied."""
        slot = self.rows_added % self.length
        values = (obs, action, reward, terminated, boundary, valid)
        for name, value in zip(self.COLUMNS, values, strict=True):
            self._write[name][slot] = value
        self.rows_added += 1

    def cut(self, obs: Array) -> None:
        """End every running episode as truncated here.

        Args:
            obs: [N, *obs] the current observations: the last ones of the episodes that are cut.
        """
        newest = (self.rows_added - 1) % self.length
        self.boundary[newest] |= self.valid[newest]
        no = np.zeros(self.num_envs, dtype=bool)
        self.add(obs, no, no, no, no, no)

    def starts(self) -> int:
        """Rows that have a successor: the number of candidates `slot_of` numbers."""
        return max(0, len(self) - 1) * self.num_envs

    def slot_of(self, candidate: Tensor) -> Tensor:
        """Flat slots of candidates 0 .. starts() - 1, oldest first."""
        oldest = self.oldest % self.length
        return (candidate + oldest * self.num_envs) % (self.length * self.num_envs)

    def eligible(self, slot: Tensor) -> Tensor:
        """Which flat slots [M] are eligible starts, [M] bool."""
        valid = self._read["valid"].index_select(0, slot)
        if self.n_step == 1:
            return valid
        newest = (self.rows_added - 1) % self.length
        later = (newest - torch.div(slot, self.num_envs, rounding_mode="floor")) % self.length  # [M] rows
        return valid & (self._window(slot)[2] <= later)

    def _window(self, slot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reward sum, discount and number of steps of the windows starting at `slot`, each [M]."""
        size = self.length * self.num_envs
        running = torch.ones_like(slot, dtype=torch.bool)
        terminated = torch.zeros_like(running)
        steps = torch.zeros_like(slot)
        total = torch.zeros(slot.shape, dtype=torch.float32)
        for k in range(self.n_step):
            row = (slot + k * self.num_envs) % size
            total += self.gamma**k * self._read["reward"].index_select(0, row) * running
            steps += running
            terminal = self._read["terminated"].index_select(0, row)
            terminated |= running & terminal
            running = running & ~(terminal | self._read["boundary"].index_select(0, row))
        discount = torch.pow(torch.tensor(self.gamma, dtype=torch.float32), steps) * ~terminated
        return total, discount, steps

    def transitions(self, slot: Tensor) -> dict[str, Tensor]:
        """Read the transitions that start at flat slots [M]: obs, action, reward, discount, next_obs."""
        if self.n_step == 1:
            reward = self._read["reward"].index_select(0, slot)
            discount = self.gamma * ~self._read["terminated"].index_select(0, slot)
            last = slot + self.num_envs
        else:
            reward, discount, steps = self._window(slot)
            last = slot + steps * self.num_envs
        last %= self.length * self.num_envs
        return {
            "obs": self._read["obs"].index_select(0, slot),
            "action": self._read["action"].index_select(0, slot).long(),
            "reward": reward,
            "discount": discount,
            "next_obs": self._read["obs"].index_select(0, last),
        }

    def export_rows(self, since: int) -> dict[str, Tensor]:
        """Copies of the rows with number >= `since`, oldest first: {column: [R, N, ...]}.

        Raises:
            ValueError: rows from `since` on were already overwritten, or are not written yet.
        """
        if not self.oldest <= since <= self.rows_added:
            raise ValueError(f"since must be in [{self.oldest}, {self.rows_added}], got {since}")
        slots = torch.arange(since, self.rows_added) % self.length
        return {name: getattr(self, name).index_select(0, slots) for name in self.COLUMNS}

    def import_rows(self, since: int, rows: dict[str, Tensor]) -> None:
        """Take exported rows back, the first of them with row number `since`; keeps the newest T.

        Rows that follow on from the newest one stored are appended; any others replace what is stored.

        Raises:
            ValueError: the rows are of another number of envs or another observation.
        """
        ours, theirs = tuple(self.obs.shape[1:]), tuple(rows["obs"].shape[1:])
        if ours != theirs:
            raise ValueError(f"rows must have the shape (num_envs, *obs) = {ours}, got {theirs}")
        if since != self.rows_added:
            self._first = since
        count = len(rows["reward"])
        kept = min(count, self.length)
        slots = torch.arange(since + count - kept, since + count) % self.length
        for name in self.COLUMNS:
            getattr(self, name)[slots] = rows[name][count - kept :]
        self.rows_added = since + count

    def state_dict(self) -> dict[str, Any]:
        return {"since": self.oldest, "rows": self.export_rows(self.oldest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._first = self.rows_added = state["since"]
        self.import_rows(state["since"], state["rows"])
