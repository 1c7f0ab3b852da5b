"""The values that travel between the parts: rows in, batches out, and the calls that join them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor

QFunction = Callable[[Tensor], Tensor]
"""Observations [N, *obs] -> expected action values [N, A]."""

PriorityUpdate = Callable[[Tensor, Tensor], None]
"""(row indices [K, B], priorities [K, B]) -> None: a round's priorities go back in one call."""


@dataclass(frozen=True)
class Batch:
    """One round's minibatches; `minibatches()` gives the K single ones, without the leading axis.

    `discount` is gamma^k x (1 - terminated), k the number of rewards really summed in `reward`: the only
    thing about episode ends and gamma that a loss sees.
    """

    obs: Tensor  # [K, B, *obs]
    action: Tensor  # [K, B] int64, 0 .. A-1
    reward: Tensor  # [K, B] float32, the discounted n-step sum
    discount: Tensor  # [K, B] float32
    next_obs: Tensor  # [K, B, *obs], the true last observation where the episode ended
    index: Tensor  # [K, B] int64, the rows drawn: row number x num_envs + env
    weight: Tensor | None = None  # [K, B] importance-sampling weight; None: uniform
    env_step: int = field(default=0, kw_only=True)  # of a round: env steps collected when it was drawn

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """The batch on another device (Lightning calls this once per round)."""
        moved: dict[str, Any] = {
            f.name: value.to(*args, **kwargs)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)

    def columns(self) -> list[Tensor]:
        """Its tensors, in order; `Batch(*columns)` is the batch again."""
        columns = [self.obs, self.action, self.reward, self.discount, self.next_obs, self.index]
        return columns if self.weight is None else [*columns, self.weight]

    def minibatches(self) -> Iterator[Batch]:
        """The K minibatches, as views."""
        for row in zip(*(column.unbind() for column in self.columns()), strict=True):
            yield Batch(*row)


@dataclass(frozen=True)
class LossOutput:
    """What an agent's loss returns for one minibatch; nothing in it is reduced or weighted."""

    loss: Tensor  # [B], with gradient
    td_error: Tensor  # [B], without gradient
    priority: Tensor  # [B] >= 0, without gradient
    q_taken: Tensor  # [B] the values of the actions taken, without gradient


@dataclass(frozen=True)
class EvaluationResult:
    """Complete episodes of one evaluation, in a fixed order (env by env)."""

    returns: list[float]
    lengths: list[int]
    cut: int = 0  # episodes ended by evaluation.max_episode_steps

    @property
    def return_mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def return_std(self) -> float:
        mean = self.return_mean
        return float((sum((r - mean) ** 2 for r in self.returns) / len(self.returns)) ** 0.5)

    @property
    def length_mean(self) -> float:
        return sum(self.lengths) / len(self.lengths)
