"""SIGINT and SIGTERM ask the run to stop after the round; a second one stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from lit_dqn.errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals(Callback):
    """As a context manager it has the signals' handlers; leaving it gives them back.

    Must be the last callback, so that the round's point and checkpoint come first; `installer` must be
    the first, so that the random baseline can be interrupted too.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.installer = _Installer(self)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python allows no other to have handlers
            self._before = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def install(self) -> None:
        """Take over the stop signals."""
        for signum in self._before:
            signal.signal(signum, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.received is not None:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        self.received = signum

    def check(self, *_: Any) -> None:
        """Stop here if a signal came.

        Raises:
            Interrupted: it carries the exit code.
        """
        if self.received is not None:
            raise Interrupted(self.received)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.val_check_batch != 1:  # else the evaluation, which starts now, is given up
            self.check()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.check()


class _Installer(Callback):
    """Installs the handlers again after Lightning's own, before any other callback starts."""

    def __init__(self, signals: StopSignals) -> None:
        self.signals = signals

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signals.install()
