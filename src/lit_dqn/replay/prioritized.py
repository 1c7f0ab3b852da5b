"""Prioritised experience replay, proportional: Schaul et al. (2016), arXiv:1511.05952, section 3.3."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from pydantic import validate_call
from torch import Tensor

from lit_dqn.errors import RunError
from lit_dqn.replay.sampler import Sampler
from lit_dqn.replay.sum_tree import SumTree
from lit_dqn.schedules import Linear

Share = Annotated[float, Ge(0), Le(1)]


class PrioritizedReplay(Sampler):
    """Starts are drawn in proportion to (|td_error| + eps)^alpha.

    Each minibatch is stratified: its b-th transition comes from the b-th of batch_size equal parts of the
    priorities' sum. Its weights are (N P)^-beta, divided by the largest of the minibatch; N, the number of
    rows, cancels. A row enters at the highest priority seen so far as soon as it is an eligible start.

    Args:
        objects, options: see `Sampler`.
        alpha: 0 draws uniformly, 1 in full proportion.
        beta: exponent of the importance-sampling weights at env step 0; rises linearly to 1.
        beta_end_env_steps: env step from which beta is 1, >= 0.
        eps: added to |td_error|, > 0, so that every start can be drawn.
    """

    OWN_BYTES = 9  # a float64 leaf and its share of the sums above it

    @validate_call
    def __init__(
        self,
        *objects: Any,
        alpha: Share = 0.6,
        beta: Share = 0.4,
        beta_end_env_steps: Annotated[int, Ge(0)] = 50_000,
        eps: Annotated[float, Gt(0)] = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(*objects, **options)
        self.alpha, self.eps = alpha, eps
        self.beta = Linear(beta, 1.0, beta_end_env_steps)
        self.tree = SumTree(self.buffer.size, self.buffer.device)  # of (|td_error| + eps)^alpha, by slot
        self.highest = torch.ones((), dtype=torch.float64, device=self.buffer.device)
        self._seen = 0  # the tree knows the rows with a number below this

    def can_sample(self) -> bool:
        """Whether at least one eligible start is stored."""
        self._take_new_rows()
        return bool(self.tree.total > 0)

    def _draw(self, updates: int, env_step: int) -> tuple[Tensor, Tensor]:
        self._take_new_rows()
        count = self.batch_size
        within = torch.rand(updates, count, generator=self.generator, dtype=torch.float64)
        share = ((torch.arange(count) + within) / count).flatten().to(self.buffer.device)
        slot = self.tree.draw(share)
        priority = self.tree[slot].view(updates, count)
        least = priority.min(dim=1, keepdim=True).values
        weight = (least / priority).pow(self.beta(env_step)).float()  # [updates, batch_size]
        return self._index_of(slot), weight

    def _index_of(self, slot: Tensor) -> Tensor:
        """The index of the row that is stored in a slot now."""
        oldest = self.buffer.oldest * self.buffer.num_envs
        return oldest + (slot - oldest) % self.buffer.size

    def _take_new_rows(self) -> None:
        """Give the rows written since the last call their priorities: 0, or the highest once eligible."""
        buffer, stride = self.buffer, self.buffer.num_envs
        if self._seen == buffer.rows_added:
            return
        oldest, newest = buffer.oldest, buffer.rows_added
        # Before these rows a window may have been incomplete at the last call; after them rows are new.
        undecided = max(oldest, self._seen - buffer.n_step)
        index, eligible = self._starts(undecided, newest)
        value = torch.where(index < self._seen * stride, self.tree[index % buffer.size], 0.0)
        value = torch.where(eligible & (value == 0), self.highest, value)
        self.tree.set(index % buffer.size, value)
        if buffer.frame_stack > 1:  # the oldest rows lose the earlier frames of their stacks
            index, eligible = self._starts(oldest, min(oldest + buffer.frame_stack - 1, newest))
            value = torch.where(eligible, self.tree[index % buffer.size], 0.0)
            self.tree.set(index % buffer.size, value)
        self._seen = newest

    def _starts(self, since: int, until: int) -> tuple[Tensor, Tensor]:
        """Indices of the rows `since` <= r < `until`, and which are eligible; the newest row is none yet."""
        first, end = since * self.buffer.num_envs, until * self.buffer.num_envs
        index = torch.arange(first, end, device=self.buffer.device)
        eligible = torch.zeros_like(index, dtype=torch.bool)
        candidates = index[: self.buffer.candidates()[1] - first]
        eligible[: len(candidates)] = self.buffer.eligible(candidates)
        return index, eligible

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """See `Sampler.update_priorities`; rows overwritten since they were drawn are left out.

        Raises:
            RunError: a priority is NaN or infinite.
        """
        index = index.flatten().to(self.buffer.device)
        value = (priority.flatten().to(self.buffer.device, torch.float64) + self.eps).pow(self.alpha)
        highest = value.max()
        if not highest.isfinite():  # NaN is the maximum of anything
            raise RunError(
                "a priority is NaN or infinite: training has diverged; try a smaller optimizer.lr "
                "or optimizer.max_grad_norm."
            )
        self.highest = torch.maximum(self.highest, highest)
        slot = index % self.buffer.size
        kept = (index >= self.buffer.oldest * self.buffer.num_envs) & (self.tree[slot] > 0)
        if not kept.all():
            slot, value = slot[kept], value[kept]
        self.tree.set(slot, value)

    def curves(self, env_step: int) -> dict[str, float]:
        return super().curves(env_step) | {"buffer/beta": self.beta(env_step)}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler.state_dict`; the priorities are whole, 8 bytes a row."""
        self._take_new_rows()
        oldest, newest = (row * self.buffer.num_envs for row in (self.buffer.oldest, self._seen))
        stored = torch.arange(oldest, newest, device=self.buffer.device)
        return super().state_dict() | {
            "priorities": self.tree[stored % self.buffer.size].cpu(),  # oldest row first
            "highest": self.highest.cpu(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Sampler.load_state_dict`; priorities of rows that a smaller replay dropped are left out."""
        super().load_state_dict(state)
        buffer = self.buffer
        end = buffer.rows_added * buffer.num_envs
        priorities = state["priorities"][-len(self) :].to(buffer.device)
        index = torch.arange(end - len(priorities), end, device=buffer.device)
        self.tree.set(torch.arange(buffer.size, device=buffer.device), torch.zeros_like(self.tree.leaves))
        self.tree.set(index % buffer.size, priorities)
        self.highest = state["highest"].to(buffer.device)
        self._seen = buffer.rows_added
