"""The run folder: where each file is, and how one run's folder is continued in another."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from uuid import uuid4

OURS = ("tensorboard", "checkpoints", "metrics.csv", "result.json", "train.log")


class RunFolder:
    """Paths inside one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last = self.checkpoints / "last.ckpt"
        self.best = self.checkpoints / "best.ckpt"
        self.metrics = path / "metrics.csv"
        self.result = path / "result.json"
        self.log = path / "train.log"
        self.tensorboard = path / "tensorboard"

    def remove_leftovers(self) -> None:
        """Delete what a run that wrote no checkpoint left behind."""
        for name in OURS:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def carry_over(self, other: RunFolder) -> None:
        """Bring another run's curves along, so that this folder stands alone."""
        if self.path.resolve() == other.path.resolve():
            return
        if other.metrics.is_file():
            shutil.copyfile(other.metrics, self.metrics)
        if other.tensorboard.is_dir():
            shutil.copytree(other.tensorboard, self.tensorboard, dirs_exist_ok=True)


def folder_of(checkpoint: Path) -> RunFolder:
    """The run folder a checkpoint lies in: `<run>/checkpoints/<file>`."""
    return RunFolder(checkpoint.resolve().parent.parent)


def new_folder(root: Path = Path("outputs")) -> RunFolder:
    """A folder of its own for a run started from Python, named as the command line names them."""
    now = datetime.now()
    path = root / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S}-{uuid4().hex[:8]}"
    path.mkdir(parents=True)
    return RunFolder(path)
