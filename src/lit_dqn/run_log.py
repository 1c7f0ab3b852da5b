"""Who says what: everything to train.log, Lightning's own notices to nobody."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lit_dqn.folder import RunFolder

log = logging.getLogger("lit_dqn")

QUIET_LOGGERS = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")
QUIET_WARNINGS = (
    # The loader must stay in this process: the replay is live.
    r".*does not have many workers.*",
    # It has a length on purpose: without one Lightning fetches a round ahead.
    r"Your `IterableDataset` has `__len__` defined.*",
    # The dataset's own state is in the checkpoint.
    r".*your dataloader is not resumable.*",
    # Lightning's own use of torch's tree functions.
    r"`isinstance.treespec, LeafSpec.` is deprecated.*",
)


@contextmanager
def run_log(folder: RunFolder) -> Iterator[None]:
    """Everything logged meanwhile, and the traceback of a failure, goes to train.log."""
    handler = logging.FileHandler(folder.log)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception:
        log.exception("the run failed")
        raise
    finally:
        root.removeHandler(handler)
        handler.close()


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Lightning's notices speak to authors of training loops, not to the users of this one."""
    loggers = [logging.getLogger(name) for name in QUIET_LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        with warnings.catch_warnings():
            for message in QUIET_WARNINGS:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
