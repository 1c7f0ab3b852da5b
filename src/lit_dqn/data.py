"""The round as a dataset: collect, then draw this round's minibatches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader, IterableDataset

from lit_dqn.checkpoint_file import REPLAY, ROWS
from lit_dqn.experience import ExperienceSource
from lit_dqn.replay.segments import Segments
from lit_dqn.schedules import rounds_in
from lit_dqn.types import Batch


class ReplayDataset(IterableDataset[Batch]):
    """Yields one stacked batch per round.

    Round r = 1, 2, ... collects until `env_step >= learning_starts + r x steps_per_round`, so nothing
    drifts. It has a length, the rounds of the whole run also after a resume: without one, Lightning would
    fetch a round ahead, with the policy of the round before.

    Args:
        source: where experience comes from; its replay is drawn from.
        learning_starts: env steps before the first update, >= 0.
        steps_per_round: env steps per round, >= 1.
        updates_per_round: minibatches per round, >= 1.
        total_env_steps: the budget; the run ends with the first whole round at or beyond it.
    """

    def __init__(
        self,
        source: ExperienceSource,
        *,
        learning_starts: int,
        steps_per_round: int,
        updates_per_round: int,
        total_env_steps: int,
    ) -> None:
        self.source = source
        self.learning_starts = learning_starts
        self.steps_per_round = steps_per_round
        self.updates_per_round = updates_per_round
        self.total_env_steps = total_env_steps
        self.total_rounds = rounds_in(total_env_steps, learning_starts, steps_per_round)
        self.round = 0

    def __len__(self) -> int:
        return self.total_rounds

    @property
    def finished(self) -> bool:
        """Whether the budget is spent; several envs may overshoot a round's plan and spend it earlier."""
        return self.source.env_step >= self.total_env_steps

    def __iter__(self) -> Iterator[Batch]:
        while not self.finished:
            yield self._next_round()

    def _next_round(self) -> Batch:
        until = self.learning_starts + (self.round + 1) * self.steps_per_round
        if self.round == 0:
            self.source.collect_startable(until)
        else:
            self.source.collect(until)
        batch = self.source.replay.sample(self.updates_per_round, self.source.env_step)
        self.round += 1
        return replace(batch, env_step=self.source.env_step)


class ReplayDataModule(LightningDataModule):
    """Gives Lightning the rounds, and its checkpoints the state of everything that feeds them.

    `save_replay` is a switch for who writes a checkpoint: Lightning puts this state into each one. The rows
    themselves are in `segments`, beside the checkpoints, which list the files they need.
    """

    def __init__(self, dataset: ReplayDataset, segments: Segments) -> None:
        super().__init__()
        self.dataset = dataset
        self.source = dataset.source
        self.segments = segments
        self.save_replay = True

    def train_dataloader(self) -> DataLoader[Batch]:
        # A live buffer cannot be copied into worker processes: they would train on frozen data.
        return DataLoader(self.dataset, batch_size=None, num_workers=0)

    def val_dataloader(self) -> list[int]:
        return [0]  # one validation step is one whole evaluation

    def cut(self) -> None:
        """End the running episodes here, so that this run and one resumed from here go on alike."""
        self.source.cut()

    def write_rows(self) -> None:
        """Bring the segments up to date; comes before a checkpoint that lists them."""
        if self.save_replay:
            self.segments.write_new(self.source.replay.buffer)

    def state_dict(self) -> dict[str, Any]:
        state = {"round": self.dataset.round, "source": self.source.state_dict()}
        return state | ({REPLAY: self._replay_state()} if self.save_replay else {})

    def _replay_state(self) -> dict[str, Any]:
        replay = self.source.replay
        return {ROWS: self.segments.state_dict(replay.buffer), "sampler": replay.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back; the rows come from the segments it lists."""
        self.dataset.round = state_dict["round"]
        self.source.load_state_dict(state_dict["source"])
        replay, state = self.source.replay, state_dict[REPLAY]
        self.segments.load_state_dict(state[ROWS], replay.buffer)
        replay.load_state_dict(state["sampler"])
