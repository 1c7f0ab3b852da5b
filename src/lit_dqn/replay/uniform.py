"""Uniform experience replay: Lin (1992), doi:10.1007/BF00992699; Mnih et al. (2015)."""

from __future__ import annotations

from torch import Tensor, randint

from lit_dqn.replay.sampler import Sampler


class UniformReplay(Sampler):
    """Every eligible start is equally likely, with replacement; arguments and options: see `Sampler`."""

    def _draw(self, updates: int, env_step: int) -> tuple[Tensor, None]:
        index = self._propose(updates * self.batch_size)
        wrong = (~self.buffer.eligible(index)).nonzero().squeeze(1)
        while len(wrong):
            again = self._propose(len(wrong))
            index[wrong] = again
            wrong = wrong[~self.buffer.eligible(again)]
        return index, None

    def _propose(self, count: int) -> Tensor:
        drawn = randint(*self.buffer.candidates(), (count,), generator=self.generator)
        return drawn.to(self.buffer.device)

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Uniform replay has no priorities: those of a round are not kept."""
