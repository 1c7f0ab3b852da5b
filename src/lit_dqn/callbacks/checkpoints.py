"""When `last.ckpt` is written, and in which order with everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from lit_dqn.callbacks.common import Milestones, data_of, is_last_round, learner
from lit_dqn.callbacks.evaluation import Evaluation
from lit_dqn.callbacks.points import Points
from lit_dqn.checkpoint_file import HEADER, read_checkpoint, row_files
from lit_dqn.errors import Interrupted
from lit_dqn.files import link_or_copy


class Checkpoints(Callback):
    """Writes `last.ckpt` on its own schedule, at the end and on a signal, and keeps older ones.

    Args:
        folder: checkpoints/ of the run.
        points, evaluation: this callback comes after them.
        header: the checkpoint's header: plain containers only.
        before_save: called before each checkpoint.
        interval: env steps between checkpoints, >= 1.
        keep: checkpoints kept, >= 1; if several, each is `step-<env step>.ckpt` too.
        resumable: save the replay; without it `last.ckpt` serves evaluation only.
    """

    def __init__(
        self,
        folder: Path,
        points: Points,
        evaluation: Evaluation,
        header: dict[str, Any],
        *,
        before_save: Callable[[], None],
        interval: int,
        keep: int,
        resumable: bool,
    ) -> None:
        self.path = folder / "last.ckpt"
        self.points, self.evaluation, self.header = points, evaluation, header
        self.milestones = Milestones(interval)
        self.before_save, self.keep, self.resumable = before_save, keep, resumable
        self.saved_env_step: int | None = None  # of the newest checkpoint written here
        self._after_evaluation = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data = data_of(trainer)
        self.milestones.start_at(data.source.env_step)
        # A resumed run starts with its checkpoint in place as last.ckpt.
        self.saved_env_step = data.source.env_step if data.dataset.round else None
        self._after_evaluation = bool(trainer.val_check_batch == 1)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        due = self.milestones.reached(learner(pl_module).env_step) or is_last_round(trainer)
        self._after_evaluation = due and self.evaluation.due
        if due and not self._after_evaluation:
            self.save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._after_evaluation or (trainer.should_stop and not is_last_round(trainer)):
            self.save(trainer)
        self._after_evaluation = False

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        data = data_of(trainer)
        # Nothing has changed since a checkpoint at this very step (a last evaluation was given up).
        unsaved = data.dataset.round > 0 and self.saved_env_step != data.source.env_step
        if isinstance(exception, Interrupted) and unsaved:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Cut the running episodes and write; a diverged network is not written over a healthy one."""
        self.points.means()
        data = data_of(trainer)
        data.cut()
        data.save_replay = self.resumable
        self.before_save()
        data.write_rows()
        trainer.save_checkpoint(self.path)
        self.saved_env_step = data.source.env_step
        self._keep_some(self.saved_env_step)
        data.segments.remove_all_but(self._row_files_of_older())

    def _keep_some(self, env_step: int) -> None:
        newest = self.path.with_name(f"step-{env_step:010d}.ckpt")
        others = sorted(self.path.parent.glob("step-*.ckpt"))
        older = [path for path in others if path.name < newest.name]
        # What is not older was left by a run that was further on before this one went back.
        for path in others:
            if path not in older[max(0, len(older) - (self.keep - 1)) :]:
                path.unlink()
        if self.keep > 1:
            link_or_copy(self.path, newest)

    def _row_files_of_older(self) -> list[str]:
        """What the older checkpoints that are kept still need."""
        older = self.path.parent.glob("step-*.ckpt")
        return [name for path in older for name in row_files(read_checkpoint(path))]

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[HEADER] = self.header
        # Lightning would take a checkpoint of the last round for a finished epoch and train nothing more.
        checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False
