"""The ring of rows: what is stored, how it is written, and how it leaves and comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lit_dqn.replay.row_files import Rows

Array = NDArray[Any]


class _DeviceColumn:
    """A column on a GPU, written to like a NumPy array."""

    def __init__(self, column: Tensor) -> None:
        self.column = column

    def __setitem__(self, slot: int, value: Array) -> None:
        self.column[slot].copy_(torch.from_numpy(value))


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Storage whose pages are all taken now.

    On the CPU NumPy allocates it, since it asks Linux for huge pages and torch does not: rows at random
    are then found faster.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    storage: Array = np.empty(shape, numpy_dtype)
    storage.fill(0)
    return torch.from_numpy(storage)


class Ring:
    """Bounded, preallocated storage that drops the oldest rows; `buffer.py` says what a row is.

    Args:
        obs_shape: shape of one observation.
        obs_dtype: torch.uint8 or torch.float32.
        num_envs: N, rows written per time step.
        length: T, time steps held.
        device: where the rows lie.
    """

    COLUMNS = ("obs", "action", "reward", "terminated", "boundary", "valid")
    OTHER_BYTES = 11  # of a row, beside its observation

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        obs_dtype: torch.dtype,
        num_envs: int,
        length: int,
        device: torch.device | str,
    ) -> None:
        self.num_envs, self.length = num_envs, length
        self.size = length * num_envs  # slots
        self.device = torch.device(device)
        shape = (length, num_envs)
        self.obs = zeros((*shape, *obs_shape), obs_dtype, self.device)
        self.action = zeros(shape, torch.int32, self.device)
        self.reward = zeros(shape, torch.float32, self.device)
        self.terminated = zeros(shape, torch.bool, self.device)  # stop bootstrapping here
        self.boundary = zeros(shape, torch.bool, self.device)  # the episode ends here
        self.valid = zeros(shape, torch.bool, self.device)  # may be a start
        self.rows_added = 0  # time steps ever written; row number r is in time slot r % T
        self._first = 0  # no row before this number is stored: imported rows need not begin at 0
        columns: dict[str, Tensor] = {name: getattr(self, name) for name in self.COLUMNS}
        # NumPy writes a small row much faster than torch.
        on_cpu = self.device.type == "cpu"
        self._write: list[Any] = [c.numpy() if on_cpu else _DeviceColumn(c) for c in columns.values()]
        self._read = {name: column.flatten(0, 1) for name, column in columns.items()}  # [T * N, ...]
        # Torch gathers rows of one axis faster than rows of several.
        self._obs_rows = self._read["obs"].view(self.size, -1)

    def __len__(self) -> int:
        """Time steps stored, <= T."""
        return self.rows_added - self.oldest

    @property
    def oldest(self) -> int:
        """Number of the oldest row stored."""
        return max(self._first, self.rows_added - self.length)

    @property
    def row_bytes(self) -> int:
        """Bytes of one time step of all envs."""
        return self.obs[0].nbytes + self.num_envs * self.OTHER_BYTES

    def add(
        self, obs: Array, action: Array, reward: Array, terminated: Array, boundary: Array, valid: Array
    ) -> None:
        """Write one time step; every argument is [N, ...] and is copied."""
        slot = self.rows_added % self.length
        # Written out: at microseconds a row a loop costs.
        to_obs, to_action, to_reward, to_terminated, to_boundary, to_valid = self._write
        to_obs[slot] = obs
        to_action[slot] = action
        to_reward[slot] = reward
        to_terminated[slot] = terminated
        to_boundary[slot] = boundary
        to_valid[slot] = valid
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

    def export_rows(self, since: int, until: int | None = None) -> Rows:
        """Copies of the rows with number `since` <= r < `until`, oldest first: {column: [R, N, ...]}.

        Args:
            until: None takes all that are written.

        Raises:
            ValueError: rows from `since` on were already overwritten, or are not written yet.
        """
        until = self.rows_added if until is None else until
        if not self.oldest <= since <= until <= self.rows_added:
            raise ValueError(f"since must be in [{self.oldest}, {until}], got {since}")
        slots = torch.arange(since, until, device=self.device) % self.length
        return {name: getattr(self, name).index_select(0, slots).cpu() for name in self.COLUMNS}

    def import_rows(self, since: int, rows: Rows) -> None:
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
        slots = torch.arange(since + count - kept, since + count, device=self.device) % self.length
        for name in self.COLUMNS:
            getattr(self, name)[slots] = rows[name][count - kept :].to(self.device)
        self.rows_added = since + count

    def forget(self, before: int) -> None:
        """Drop the rows with a number below `before`."""
        self._first = max(self._first, before)
