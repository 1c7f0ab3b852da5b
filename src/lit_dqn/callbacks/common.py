"""What the callbacks share: milestones in env steps, and typed access to the parts of a fit."""

from __future__ import annotations

from pytorch_lightning import LightningModule, Trainer

from lit_dqn.data import ReplayDataModule
from lit_dqn.module import LitDQN


class Milestones:
    """The multiples of an interval in env steps; `None` or 0: there are none."""

    def __init__(self, interval: int | None) -> None:
        self.interval = interval
        self._seen = 0

    def start_at(self, env_step: int) -> None:
        """Multiples up to here are behind us."""
        if self.interval:
            self._seen = env_step // self.interval

    def reached(self, env_step: int) -> bool:
        """Whether a multiple was reached or passed since the last call."""
        if not self.interval:
            return False
        before, self._seen = self._seen, env_step // self.interval
        return self._seen > before


def is_last_round(trainer: Trainer) -> bool:
    return data_of(trainer).dataset.finished


def data_of(trainer: Trainer) -> ReplayDataModule:
    data = trainer.datamodule  # type: ignore[attr-defined]
    assert isinstance(data, ReplayDataModule)
    return data


def learner(module: LightningModule) -> LitDQN:
    assert isinstance(module, LitDQN)
    return module
