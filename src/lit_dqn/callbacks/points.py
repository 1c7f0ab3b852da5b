"""The curves: which there are, where their points go, and the training ones."""

from __future__ import annotations

import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from lit_dqn.callbacks.common import Milestones, data_of, learner
from lit_dqn.errors import RunError
from lit_dqn.files import MetricsFile
from lit_dqn.module import METRICS, LitDQN
from lit_dqn.run_log import log
from lit_dqn.schedules import Schedule

EVALUATION = ("eval/return_mean", "eval/return_std", "eval/length_mean", "eval/random_return")
CURVES = [
    *EVALUATION,
    "episode/return",
    "episode/length",
    *METRICS,
    "train/epsilon",
    "buffer/size",
    "buffer/beta",
    "time/env_steps_per_second",
    "time/updates_per_second",
]


class Recorder:
    """Writes a point to metrics.csv and to Lightning's loggers; x is always the env step."""

    def __init__(self, metrics_file: MetricsFile) -> None:
        self.metrics_file = metrics_file

    def record(self, trainer: Trainer, env_step: int, values: dict[str, float]) -> None:
        self.metrics_file.write(env_step, values)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=env_step)

    def go_back(self, trainer: Trainer, env_step: int, length: int) -> None:
        """Drop every point that came after a checkpoint.

        Args:
            env_step: of the checkpoint; the loggers drop every point from there on.
            length: bytes of metrics.csv at the checkpoint.
        """
        self.metrics_file.truncate(length)
        for values in self.metrics_file.rows_at(env_step):  # these came before it
            for logger in trainer.loggers:
                logger.log_metrics(values, step=env_step)


class Points(Callback):
    """Training curves: means since the last point, every `interval` env steps, and at both ends.

    Args:
        recorder: where points go.
        epsilon: the exploration schedule, for its curve.
        interval: env steps between points, >= 1.
    """

    def __init__(self, recorder: Recorder, epsilon: Schedule, interval: int) -> None:
        self.recorder, self.epsilon = recorder, epsilon
        self.milestones = Milestones(interval)
        self._sums: dict[str, Tensor] = {}
        self._rounds = 0
        self._clock = (time.perf_counter(), 0, 0)  # time, env step and updates at the last point
        self._resumed_length: int | None = None
        self._advised = False  # the agent's advice on the returns is given once

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = learner(pl_module)
        if self._resumed_length is not None:
            self.recorder.go_back(trainer, module.env_step, self._resumed_length)
        self.milestones.start_at(data_of(trainer).source.env_step)
        self._clock = (time.perf_counter(), module.env_step, module.updates)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Add the round's means; write a point if one is due, and after the first round."""
        module = learner(pl_module)
        for name, value in module.metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._rounds += 1
        first = data_of(trainer).dataset.round == 1
        if self.milestones.reached(module.env_step) or first:
            self._write(trainer, module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._rounds:
            self._write(trainer, learner(pl_module))

    def means(self) -> dict[str, float]:
        """The means since the last point.

        Raises:
            RunError: one of them is NaN or infinite: training has diverged.
        """
        if not self._sums:
            return {}
        values = (torch.stack(list(self._sums.values())) / self._rounds).tolist()
        means = dict(zip(self._sums, values, strict=True))
        for name, value in means.items():
            if not value - value == 0:
                raise RunError(
                    f"{name} is {value}: training has diverged; try a smaller optimizer.lr "
                    "or optimizer.max_grad_norm."
                )
        return means

    def _write(self, trainer: Trainer, module: LitDQN) -> None:
        source = data_of(trainer).source
        values = self.means()
        finished = source.take_finished()
        if finished:
            values["episode/return"] = sum(r for r, _ in finished) / len(finished)
            values["episode/length"] = sum(n for _, n in finished) / len(finished)
        values["train/epsilon"] = self.epsilon(module.env_step)
        values |= source.replay.curves(module.env_step)
        now, (then, env_step, updates) = time.perf_counter(), self._clock
        values["time/env_steps_per_second"] = (module.env_step - env_step) / (now - then)
        values["time/updates_per_second"] = (module.updates - updates) / (now - then)
        self.recorder.record(trainer, module.env_step, values)
        advice = None if self._advised else module.learner.agent.advice_on_returns(*source.returns_seen())
        if advice is not None:
            log.warning(advice)
            self._advised = True
        self._clock = (now, module.env_step, module.updates)
        self._sums, self._rounds = {}, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "sums": dict(self._sums),
            "rounds": self._rounds,
            "metrics_file_length": self.recorder.metrics_file.length(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sums, self._rounds = dict(state_dict["sums"]), state_dict["rounds"]
        self._resumed_length = state_dict["metrics_file_length"]
