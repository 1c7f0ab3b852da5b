"""One progress bar over the whole budget; lines where there is no terminal."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lit_dqn.callbacks.common import data_of, learner
from lit_dqn.callbacks.evaluation import Scores
from lit_dqn.evaluation import Evaluator
from lit_dqn.schedules import Schedule

REFRESH_SECONDS = 0.2
LINE_SECONDS = 10.0


class ProgressBar(Callback):
    """Env steps done, ETA, steps per second, epsilon, last evaluation and loss.

    Args:
        evaluator: reports the episodes it has played.
        scores: where the last evaluation is.
        epsilon: the exploration schedule.
        total: the budget in env steps.
    """

    def __init__(self, evaluator: Evaluator, scores: Scores, epsilon: Schedule, total: int) -> None:
        self.evaluator, self.scores, self.epsilon, self.total = evaluator, scores, epsilon, total
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            auto_refresh=False,
            expand=True,
        )
        self._task: TaskID | None = None
        self._shown = 0.0
        self._env_step = 0
        self._loss = ""
        self._rate = 0.0
        self._mark = (0.0, 0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar, where the run is now."""
        source = data_of(trainer).source
        self._env_step = source.env_step
        self._mark = (time.monotonic(), self._env_step)
        self._task = self.bar.add_task(
            "filling replay", total=self.total, status="", completed=self._env_step
        )
        if self.console.is_terminal:
            self.bar.start()
        source.on_step = both(source.on_step, self._collected)
        self.evaluator.on_step = both(self.evaluator.on_step, self._evaluating)

    def _collected(self, env_step: int) -> None:
        self._env_step = env_step
        self._show("filling replay" if not self._loss else "training")

    def _evaluating(self, episodes: int) -> None:
        what = "evaluating" if self._loss else "random baseline"
        self._show(f"{what} {episodes}/{self.evaluator.episodes}")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._due() or not self._loss:
            self._take_loss(pl_module)
        self._show("training")

    def _take_loss(self, pl_module: LightningModule) -> None:
        metrics = learner(pl_module).metrics
        if metrics:  # none yet where a resumed run has nothing left to do
            self._loss = f"loss {metrics['train/loss'].item():.3g}"

    def _due(self) -> bool:
        pause = REFRESH_SECONDS if self.console.is_terminal else LINE_SECONDS
        return time.monotonic() - self._shown >= pause

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._take_loss(pl_module)
        self._show("training", now=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._take_loss(pl_module)
        self._show("done" if not trainer.should_stop else "stopped early", now=True)
        self.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        """Give the terminal back."""
        self.bar.stop()

    def _status(self) -> str:
        rate = [f"{self._rate:,.0f} steps/s"] if self._rate else []
        parts = [*rate, f"eps {self.epsilon(self._env_step):.2f}"]
        if self.scores.last is not None:
            parts.append(f"eval {self.scores.last.return_mean:.1f}")
        return ", ".join([*parts, self._loss] if self._loss else parts)

    def _show(self, what: str, now: bool = False) -> None:
        if not now and not self._due():
            return
        self._shown = clock = time.monotonic()
        seconds, steps = clock - self._mark[0], self._env_step - self._mark[1]
        if seconds > 1 and steps:
            self._rate = steps / seconds
            if seconds > 5:
                self._mark = (clock, self._env_step)
        if self.console.is_terminal and self._task is not None:
            done = min(self._env_step, self.total)
            self.bar.update(self._task, completed=done, description=what, status=self._status())
            self.bar.refresh()
        else:
            share = min(1.0, self._env_step / self.total)
            line = f"{what}: {self._env_step:,}/{self.total:,} steps ({share:.0%}), {self._status()}"
            self.console.print(line, highlight=False, soft_wrap=True)


def both(first: Any, second: Any) -> Any:
    """A callable that calls two with the same argument, in order."""

    def call(value: int) -> None:
        first(value)
        second(value)

    return call
