"""How transitions are read out of the ring of rows.

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

import torch
from torch import Tensor

from lit_dqn.errors import UserError
from lit_dqn.replay.ring import Ring
from lit_dqn.replay.row_files import numbers, read_files, read_header, write_files, write_header

StackPadding = Literal["zero", "first"]


class ReplayBuffer(Ring):
    """A ring of rows that n-step transitions over stacked frames are read out of.

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
        super().__init__(obs_shape, obs_dtype, num_envs, capacity // num_envs, device)
        self.n_step, self.gamma = n_step, gamma
        self.frame_stack, self.stack_padding, self.reward_clip = frame_stack, stack_padding, reward_clip
        # Tensors, since an operator on a number costs more than its arithmetic.
        self._gamma = torch.tensor(gamma, dtype=torch.float32, device=device)
        self._zero = torch.zeros((), device=device)

    def candidates(self) -> tuple[int, int]:
        """The half-open range of indices that have a successor: all that may be eligible."""
        return self.oldest * self.num_envs, max(self.oldest, self.rows_added - 1) * self.num_envs

    def eligible(self, index: Tensor) -> Tensor:
        """Which of the candidates `index` [M] are eligible starts, [M] bool."""
        found = self._column("valid", self._slot(index))
        # Only near the write head may a window be incomplete, or a stack have lost its earlier frames.
        if self.n_step > 1:
            newest = (index >= (self.rows_added - self.n_step) * self.num_envs).nonzero().squeeze(1)
            if len(newest):
                found[newest] &= self._window_is_written(index[newest])
        if self.frame_stack > 1 and self.oldest > 0:
            oldest = (index < (self.oldest + self.frame_stack - 1) * self.num_envs).nonzero().squeeze(1)
            if len(oldest):
                found[oldest] &= self._stack_is_stored(index[oldest])
        return found

    def transitions(self, index: Tensor) -> dict[str, Tensor]:
        """Read the transitions that start at eligible rows.

        Args:
            index: of any shape [...].

        Returns:
            obs and next_obs [..., *obs], action, reward and discount [...].
        """
        shape, index = index.shape, index.flatten()
        slot = self._slot(index)
        if self.n_step == 1:
            reward = self._reward(slot)
            discount = torch.where(self._column("terminated", slot), self._zero, self._gamma)
            steps: Tensor | None = None
        else:
            reward, discount, steps = self._window(index)
        obs, next_obs = self._observations(index, slot, steps)
        return {
            "obs": obs.view(*shape, *obs.shape[1:]),
            "action": self._column("action", slot).long().view(shape),
            "reward": reward.view(shape),
            "discount": discount.view(shape),
            "next_obs": next_obs.view(*shape, *obs.shape[1:]),
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
        return total, torch.where(terminated, self._zero, torch.pow(self._gamma, steps)), steps

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
        back = torch.arange(1, self.frame_stack, device=self.device) * self.num_envs
        rows = index.unsqueeze(1) - back  # [M, k - 1], nearest first
        valid = self._column("valid", self._slot(rows.flatten())).view_as(rows)
        mine = valid & (rows >= self.oldest * self.num_envs)
        return mine.cumprod(1).sum(1)  # up to the first that is not

    def _window_is_written(self, index: Tensor) -> Tensor:
        """Whether the row after the window at `index` is there, [M] bool."""
        after = index + self._window(index)[2] * self.num_envs
        return after < self.rows_added * self.num_envs

    def _stack_is_stored(self, index: Tensor) -> Tensor:
        """Whether no frame of the stack at `index` may have been overwritten, [M] bool."""
        earlier = self._earlier_frames(index)
        whole = earlier == self.frame_stack - 1
        return whole | (index - (earlier + 1) * self.num_envs >= self.oldest * self.num_envs)

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
