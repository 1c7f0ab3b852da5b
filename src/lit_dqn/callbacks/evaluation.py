"""When Lightning's validation loop runs, and what becomes of its result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from lit_dqn.callbacks.common import Milestones, data_of, learner
from lit_dqn.callbacks.points import Recorder
from lit_dqn.checkpoint_file import policy_checkpoint
from lit_dqn.evaluation import Evaluator
from lit_dqn.files import write_atomically
from lit_dqn.module import LitDQN
from lit_dqn.types import EvaluationResult

NEVER = sys.maxsize  # a val_check_batch no round number is a multiple of


class Scores:
    """The evaluations' outcome so far; part of the checkpoint."""

    def __init__(self) -> None:
        self.last: EvaluationResult | None = None
        self.last_env_step = 0
        self.best_mean: float | None = None
        self.best_env_step = 0
        self.best_updates = 0
        self.best_weights: dict[str, Tensor] = {}
        self.random_mean: float | None = None

    def take(self, result: EvaluationResult, module: LitDQN) -> bool:
        """Keep an evaluation; says whether it is the best so far."""
        self.last, self.last_env_step = result, module.env_step
        if self.best_mean is not None and result.return_mean <= self.best_mean:
            return False
        self.best_mean = result.return_mean
        self.best_env_step, self.best_updates = module.env_step, module.updates
        self.best_weights = {k: v.detach().cpu().clone() for k, v in module.q_net.state_dict().items()}
        return True

    def last_mean(self) -> float:
        """Mean return of the last evaluation, of which there must be one."""
        assert self.last is not None
        return self.last.return_mean

    def state_dict(self) -> dict[str, Any]:
        last = None if self.last is None else vars(self.last).copy()
        return {**vars(self), "last": last, "best_weights": dict(self.best_weights)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.last = None if state["last"] is None else EvaluationResult(**state["last"])


class Evaluation(Callback):
    """Says when Lightning's validation loop runs, and takes its result.

    Args:
        recorder: where points go.
        scores: what is kept of them.
        evaluator: measures the random baseline.
        interval: env steps between evaluations; None: never.
        random_baseline: measure random actions once, at the start of the first fit.
        stop_at_return: end training at the first evaluation whose mean is at least this; None: do not.
        best_path: where the best weights go.
        header: the checkpoint's header.
        on_result: called after every evaluation, and when a resumed run starts.
    """

    def __init__(
        self,
        recorder: Recorder,
        scores: Scores,
        evaluator: Evaluator,
        *,
        interval: int | None,
        random_baseline: bool,
        stop_at_return: float | None,
        best_path: Path,
        header: dict[str, Any],
        on_result: Callable[[], object],
    ) -> None:
        self.recorder, self.scores, self.evaluator = recorder, scores, evaluator
        self.milestones = Milestones(interval)
        self.random_baseline, self.stop_at_return = random_baseline, stop_at_return
        self.best_path, self.header, self.on_result = best_path, header, on_result
        self.due = False  # at this round, on the schedule
        self._given_up = False  # a signal stopped the evaluation due at the checkpoint's round
        self._resumed = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the place on the schedule; once, measure the random baseline."""
        self.milestones.start_at(data_of(trainer).source.env_step)
        trainer.val_check_batch = 1 if self._given_up and self.milestones.interval else NEVER
        if self._resumed:
            self._restore_files()
        if self.random_baseline and self.milestones.interval and self.scores.random_mean is None:
            self.scores.random_mean = self.evaluator.random_baseline().return_mean

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._given_up = False
        self.due = self.milestones.reached(learner(pl_module).env_step)
        trainer.val_check_batch = 1 if self.due else NEVER

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._given_up = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._given_up = False
        trainer.val_check_batch = NEVER
        self._take(trainer, learner(pl_module))
        if self.stop_at_return is not None and self.scores.last_mean() >= self.stop_at_return:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = learner(pl_module)
        if self.milestones.interval and self.scores.last_env_step != module.env_step:
            module.validation_step(0)
            self._take(trainer, module)

    def _take(self, trainer: Trainer, module: LitDQN) -> None:
        result = module.evaluation
        assert result is not None
        if self.scores.take(result, module):
            self._write_best()
        values = {
            "eval/return_mean": result.return_mean,
            "eval/return_std": result.return_std,
            "eval/length_mean": result.length_mean,
        }
        if self.scores.random_mean is not None:
            values["eval/random_return"] = self.scores.random_mean
        self.recorder.record(trainer, module.env_step, values)
        self.on_result()

    def _restore_files(self) -> None:
        """Undo what was written after the checkpoint: an end off the schedule has its own evaluation."""
        if self.scores.best_mean is None:
            self.best_path.unlink(missing_ok=True)
        else:
            self._write_best()
        self.on_result()

    def _write_best(self) -> None:
        best = policy_checkpoint(
            self.header, self.scores.best_weights, self.scores.best_env_step, self.scores.best_updates
        )
        write_atomically(self.best_path, lambda file: torch.save(best, file))

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self.scores.state_dict(), "given_up": self._given_up}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scores.load_state_dict(state_dict["scores"])
        self._given_up = state_dict["given_up"]
        self._resumed = True
