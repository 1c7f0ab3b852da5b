"""The ring of rows, and how transitions are read out of it.

Invariant (of the whole replay). Rows are stored exactly as the vector env emits them, time-major [T, N]:
row r of env n holds the observation *before* the action, the action, the raw reward and the flags.
Gymnasium's NEXT_STEP autoreset emits, after an ending, one extra row whose observation is the true last one
and whose action is ignored; it is stored with `valid = False` and is never a start. Therefore the
successor's observation is always the next row's, every observation is stored once, an episode begins where
the row before it is invalid, and a truncated episode bootstraps from its true last observation without a
special case.

A *start* is eligible when its row is valid, its window of up to n steps, which stops at the first ending,
is followed by a written row, and its stack of frames is stored down to its first frame or to the row
before its episode.

Rows are named by *index*: row number x N + env. The slot of an index is its remainder by T x N, so an index
never comes to mean another row, however often the ring wraps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lit_dqn.errors import UserError
from lit_dqn.replay.row_files import Rows, numbers, read_files, read_header, write_files, write_header

Array = NDArray[Any]
StackPadding = Literal["zero", "first"]


class _DeviceColumn:
    """A column on a GPU, written to like a NumPy array."""

    def __init__(self, column: Tensor) -> None:
        self.column = column

    def __setitem__(self, slot: int, value: Array) -> None:
        self.column[slot].copy_(torch.from_numpy(value))


class ReplayBuffer:
    """Bounded, preallocated storage that drops the oldest rows.

    Args:
        obs_shape: shape of one stored observation (one frame, where frames are stacked).
        obs_dtype: torch.uint8 or torch.float32.
        num_envs: N, rows written per time step.
        capacity: rows in all, >= (n_step + frame_stack + 2) x num_envs; T = capacity // num_envs.
        n_step: rewards summed per transition, >= 1.
        gamma: discount per env step, in [0, 1].
        frame_stack: k >= 1; with k > 1 observations are read as [k, *obs_shape], oldest frame first.
        stack_padding: what stands before an episode's first frame: `zero`, or that `first` frame again.
        reward_clip: c > 0: rewards are read clipped to [-c, c]; stored as they are. None: not clipped.
        device: where the rows lie and are gathered.

    Raises:
        UserError: `capacity` is too small to hold one window per env.
    """

    COLUMNS = ("obs", "action", "reward", "terminated", "boundary", "valid")
    OTHER_BYTES = 11  # of a row, beside its observation

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        obs_dtype: torch.dtype,
        num_envs: int,
        *,
        capacity: int,
        n_step: int = 1,
        gamma: float = 0.99,
        frame_stack: int = 1,
        stack_padding: StackPadding = "zero",
        reward_clip: float | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        # A window of n rows, its successor, up to two invalid rows in a row (an ending, then a cut), and
        # the earlier frames of a stack.
        least = (n_step + frame_stack + 2) * num_envs
        if capacity < least:
            raise UserError(
                f"buffer.capacity must be at least (n_step + frame_stack + 2) x num_envs = {least}, "
                f"got {capacity}."
            )
        self.num_envs, self.n_step, self.gamma = num_envs, n_step, gamma
        self.frame_stack, self.stack_padding, self.reward_clip = frame_stack, stack_padding, reward_clip
        self.length = capacity // num_envs  # T
        self.size = self.length * num_envs  # slots
        self.device = torch.device(device)
        shape = (self.length, num_envs)
        self.obs = torch.zeros((*shape, *obs_shape), dtype=obs_dtype, device=device)
        self.action = torch.zeros(shape, dtype=torch.int32, device=device)
        self.reward = torch.zeros(shape, dtype=torch.float32, device=device)
        self.terminated = torch.zeros(shape, dtype=torch.bool, device=device)  # stop bootstrapping here
        self.boundary = torch.zeros(shape, dtype=torch.bool, device=device)  # the episode ends here
        self.valid = torch.zeros(shape, dtype=torch.bool, device=device)  # may be a start
        self.rows_added = 0  # time steps ever written; row number r is in time slot r % T
        self._first = 0  # no row before this number is stored: imported rows need not begin at 0
        columns: dict[str, Tensor] = {name: getattr(self, name) for name in self.COLUMNS}
        # NumPy writes a small row in a tenth of the time torch takes.
        on_cpu = self.device.type == "cpu"
        self._write: list[Any] = [c.numpy() if on_cpu else _DeviceColumn(c) for c in columns.values()]
        self._read = {name: column.flatten(0, 1) for name, column in columns.items()}  # [T * N, ...]
        # Gathering rows of one axis takes torch two thirds of the time of rows of several.
        self._obs_rows = self._read["obs"].view(self.size, -1)

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
        for column, value in zip(self._write, values):  # noqa: B905  (at microseconds a row, strict costs)
            column[slot] = value
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

    def candidates(self) -> tuple[int, int]:
        """The half-open range of indices that have a successor: all that may be eligible."""
        return self.oldest * self.num_envs, max(self.oldest, self.rows_added - 1) * self.num_envs

    def eligible(self, index: Tensor) -> Tensor:
        """Which of the stored rows `index` [M] are eligible starts, [M] bool."""
        found = self._column("valid", self._slot(index))
        if self.n_step > 1:
            found = found & (index + self._window(index)[2] * self.num_envs < self.rows_added * self.num_envs)
        else:
            found = found & (index < (self.rows_added - 1) * self.num_envs)
        if self.frame_stack > 1:
            found = found & self._stack_is_stored(index)
        return found

    def transitions(self, index: Tensor) -> dict[str, Tensor]:
        """Read the transitions that start at eligible rows [M]: obs, action, reward, discount, next_obs."""
        slot = self._slot(index)
        if self.n_step == 1:
            reward = self._reward(slot)
            discount = self.gamma * ~self._column("terminated", slot)
            steps: Tensor | None = None
        else:
            reward, discount, steps = self._window(index)
        obs, next_obs = self._observations(index, slot, steps)
        return {
            "obs": obs,
            "action": self._column("action", slot).long(),
            "reward": reward,
            "discount": discount,
            "next_obs": next_obs,
        }

    def _slot(self, index: Tensor) -> Tensor:
        return index % self.size

    def _column(self, name: str, slot: Tensor) -> Tensor:
        return self._read[name].index_select(0, slot)

    def _observation(self, slot: Tensor) -> Tensor:
        return self._obs_rows.index_select(0, slot).view(-1, *self.obs.shape[2:])

    def _reward(self, slot: Tensor) -> Tensor:
        reward = self._column("reward", slot)
        return reward if self.reward_clip is None else reward.clamp(-self.reward_clip, self.reward_clip)

    def _window(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reward sum, discount and number of steps of the windows that start at `index`, each [M]."""
        running = torch.ones_like(index, dtype=torch.bool)
        terminated = torch.zeros_like(running)
        steps = torch.zeros_like(index)
        total = torch.zeros_like(index, dtype=torch.float32)
        for k in range(self.n_step):
            slot = self._slot(index + k * self.num_envs)
            total += self.gamma**k * self._reward(slot) * running
            steps += running
            terminal = self._column("terminated", slot)
            terminated |= running & terminal
            running = running & ~(terminal | self._column("boundary", slot))
        gamma = torch.tensor(self.gamma, dtype=torch.float32, device=self.device)
        return total, torch.pow(gamma, steps) * ~terminated, steps

    def _observations(self, index: Tensor, slot: Tensor, steps: Tensor | None) -> tuple[Tensor, Tensor]:
        """obs and next_obs of transitions over `steps` [M] rows each (None: one)."""
        stride = self.num_envs
        if self.frame_stack == 1:
            last = self._slot(index + (stride if steps is None else steps * stride))
            return self._observation(slot), self._observation(last)
        earlier = self._earlier_frames(index)
        if steps is None:  # k - 1 of their frames are the same: gathered once
            frames = self._frames(index, earlier, self.frame_stack, 1)
            return frames[:, :-1], frames[:, 1:]
        most = self.frame_stack - 1
        return (
            self._frames(index, earlier, self.frame_stack, 0),
            self._frames(index + steps * stride, (earlier + steps).clamp(max=most), self.frame_stack, 0),
        )

    def _frames(self, index: Tensor, earlier: Tensor, past: int, future: int) -> Tensor:
        """Frames from `past - 1` rows before `index` to `future` rows after it, [M, past + future, *obs].

        Args:
            earlier: [M] how many frames before `index` belong to its episode.
        """
        offset = torch.arange(1 - past, future + 1, device=self.device)  # [past + future]
        inside = torch.maximum(offset, -earlier.unsqueeze(1))  # [M, past + future]
        rows = (index.unsqueeze(1) + inside * self.num_envs).flatten()
        frames = self._obs_rows.index_select(0, self._slot(rows))
        if self.stack_padding == "zero":
            frames.index_fill_(0, (inside > offset).flatten().nonzero().squeeze(1), 0)
        return frames.view(*inside.shape, *self.obs.shape[2:])

    def _earlier_frames(self, index: Tensor) -> Tensor:
        """How many of the k - 1 rows before `index` are stored and of its episode, [M]."""
        running = torch.ones_like(index, dtype=torch.bool)
        count = torch.zeros_like(index)
        for j in range(1, self.frame_stack):
            row = index - j * self.num_envs
            stored = row >= self.oldest * self.num_envs
            running = running & stored & self._column("valid", self._slot(row))
            count += running
        return count

    def _stack_is_stored(self, index: Tensor) -> Tensor:
        """Whether no frame of the stack at `index` may have been overwritten, [M] bool."""
        if self.oldest == 0:  # nothing ever was
            return torch.ones_like(index, dtype=torch.bool)
        earlier = self._earlier_frames(index)
        whole = earlier == self.frame_stack - 1
        return whole | (index - (earlier + 1) * self.num_envs >= self.oldest * self.num_envs)

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

    @property
    def row_bytes(self) -> int:
        """Bytes of one time step of all envs."""
        return self.obs[0].nbytes + self.num_envs * self.OTHER_BYTES

    def save(self, folder: Path) -> None:
        """Write all rows as a dataset of its own, which `load` reads: raw rewards, single frames.

        Raises:
            UserError: there is something in the folder.
            RunError: the disk refused.
        """
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty; choose another folder for the rows.")
        names = write_files(folder, self.oldest, self.rows_added, self.row_bytes, self.export_rows)
        dtype = str(self.obs.dtype).removeprefix("torch.")
        write_header(folder, names, list(self.obs.shape[2:]), dtype, self.num_envs)

    @classmethod
    def load(cls, folder: Path, *, capacity: int | None = None, **options: Any) -> ReplayBuffer:
        """A buffer with the rows of a dataset; runs no code from its files.

        Args:
            capacity: rows in all; None is just enough for those there.
            options: n_step, gamma, frame_stack, stack_padding, reward_clip, device: see the class. They
                say how rows are read and are not part of the dataset.

        Raises:
            UserError: the folder is no dataset, or a file of it is damaged or missing.
        """
        header = read_header(folder)
        num_envs, names = header["num_envs"], header["files"]
        stored = sum(until - since for since, until in map(numbers, names))
        least = options.get("n_step", 1) + options.get("frame_stack", 1) + 2
        buffer = cls(
            tuple(header["obs_shape"]),
            {"uint8": torch.uint8, "float32": torch.float32}[header["obs_dtype"]],
            num_envs,
            capacity=max(stored, least) * num_envs if capacity is None else capacity,
            **options,
        )
        for since, rows in read_files(folder, names):
            buffer.import_rows(since, rows)
        return buffer
