"""Uniform experience replay: Lin (1992), doi:10.1007/BF00992699; Mnih et al. (2015)."""

from __future__ import annotations

import torch
from torch import Tensor

from lit_dqn.replay.sampler import Sampler


class UniformReplay(Sampler):
    """Every eligible start is equally likely, with replacement; arguments and options: see `Sampler`."""

    def _draw(self, updates: int, env_step: int) -> tuple[Tensor, None]:
        count = updates * self.batch_size
        index = self._starts(count)
        while len(index) < count:
            index = torch.cat([index, self._starts(count - len(index))])
        return index[:count], None

    def _starts(self, count: int) -> Tensor:
        """The eligible ones of a few more than `count` rows."""
        drawn = torch.randint(
            *self.buffer.candidates(), (count + count // 16 + 8,), generator=self.generator
        ).to(self.buffer.device)
        return drawn.index_select(0, self.buffer.eligible(drawn).nonzero().view(-1))

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Uniform replay has no priorities: those of a round are not kept."""
