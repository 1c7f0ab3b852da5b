"""The run folder: where each file is, and how one run's folder is continued in another."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from lit_dqn.errors import UserError
from lit_dqn.files import link_or_copy

OURS = ("tensorboard", "checkpoints", "metrics.csv", "result.json", "train.log")
OURS_WITHIN = (
    r"tensorboard/(.*/)?events\.out\.tfevents\..*",
    r"tensorboard/hparams\.yaml",
    r"checkpoints/(best|step-\d+)\.ckpt",
    r"checkpoints/replay/rows-\d+-\d+\.pt",
    r"(.*/)?\.[^/]*\.part",
)
"""Patterns of what a run writes before its first `last.ckpt`."""


class RunFolder:
    """Paths inside one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last = self.checkpoints / "last.ckpt"
        self.best = self.checkpoints / "best.ckpt"
        self.replay = self.checkpoints / "replay"
        self.metrics = path / "metrics.csv"
        self.result = path / "result.json"
        self.log = path / "train.log"
        self.tensorboard = path / "tensorboard"

    @contextmanager
    def claimed(self, checkpoint: Path | None = None) -> Iterator[None]:
        """Meanwhile the folder is this process's alone, for a new run or one that goes on from `checkpoint`.

        Raises:
            UserError: another process is writing to it, or see `refuse_another_run`; nothing was changed.
        """
        goes_on = checkpoint is not None and self.holds(checkpoint)
        if not goes_on:
            self.refuse_another_run()
        with self._locked():
            if not goes_on:
                self.refuse_another_run()  # another process may have been quicker
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{self.path}: another process is writing to this folder; wait for it, or choose another one."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def remove_leftovers(self) -> None:
        """Delete what a run that wrote no checkpoint left behind, and nothing else.

        Raises:
            UserError: another process is writing there, or there is something that no run of ours has
                written; nothing was deleted.
        """
        with self._locked():
            there = [self.path / name for name in OURS if (self.path / name).exists()]
            files = [f for p in there for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file()]
            for file in files:
                if not self._is_ours(file):
                    raise UserError(
                        f"{file} was left by no run of lit_dqn and is not deleted; "
                        "remove it or choose another folder."
                    )
            for file in files:
                file.unlink()
            for path in there:
                if path.is_dir():
                    shutil.rmtree(path)  # its folders, empty now

    def _is_ours(self, file: Path) -> bool:
        name = file.relative_to(self.path).as_posix()
        return any(re.fullmatch(pattern, name) for pattern in (*OURS, *OURS_WITHIN))

    def go_on(self, checkpoint: Path, row_files: list[str]) -> None:
        """Bring what a run that goes on from `checkpoint` needs into the claimed folder.

        Args:
            row_files: what lies in `replay/` beside the checkpoint and belongs to it.
        """
        home = folder_of(checkpoint)
        self.replay.mkdir(parents=True, exist_ok=True)
        if home is not None and not self.holds(checkpoint):
            self._copy_curves(home)
        for name in row_files:
            link_or_copy(checkpoint.parent / self.replay.name / name, self.replay / name)
        # Last, and at once: a folder with a last.ckpt can be continued.
        link_or_copy(checkpoint, self.last)

    def holds(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is one of the run that is in this folder."""
        home = folder_of(checkpoint)
        return home is not None and home.path == self.path.resolve()

    def refuse_another_run(self) -> None:
        """Look for what a run leaves behind.

        Raises:
            UserError: the folder holds another run, which is neither mixed with this one nor deleted.
        """
        if self.last.is_file():
            raise UserError(
                f"{self.path} holds a run already; to continue it type resume={self.last}, "
                "to start another one choose another folder."
            )
        for name in OURS:
            if (self.path / name).exists():
                raise UserError(
                    f"{self.path} holds {name}, left by a run that wrote no checkpoint; remove it, "
                    "choose another folder, or type resume=auto to start afresh there."
                )

    def _copy_curves(self, other: RunFolder) -> None:
        """Bring another run's curves along, so that this folder stands alone."""
        if other.metrics.is_file():
            shutil.copyfile(other.metrics, self.metrics)
        if other.tensorboard.is_dir():
            shutil.copytree(other.tensorboard, self.tensorboard, dirs_exist_ok=True)


def folder_of(checkpoint: Path) -> RunFolder | None:
    """The run folder a checkpoint lies in, `<run>/checkpoints/<file>`; None if it lies elsewhere."""
    folder = checkpoint.resolve().parent
    return RunFolder(folder.parent) if folder.name == "checkpoints" else None


def own_folder_of(checkpoint: Path) -> RunFolder:
    """The run folder that a resumed run goes on in.

    Raises:
        UserError: the checkpoint lies in no run folder.
    """
    folder = folder_of(checkpoint)
    if folder is None:
        raise UserError(f"{checkpoint} lies in no run's checkpoints/ folder; type hydra.run.dir=PATH too.")
    return folder


def new_folder(root: Path = Path("outputs")) -> RunFolder:
    """A folder of its own for a run started from Python, named as the command line names them."""
    now = datetime.now()
    path = root / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S}-{uuid4().hex[:8]}"
    path.mkdir(parents=True)
    return RunFolder(path)
