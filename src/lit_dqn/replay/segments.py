"""The replay beside its checkpoints: files of rows that are written once and shared by checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lit_dqn.replay.buffer import ReplayBuffer
from lit_dqn.replay.row_files import numbers, read_files, write_files


class Segments:
    """Each checkpoint adds the rows that are new since the last one, and lists the files it needs.

    Args:
        folder: where the files are; made when the first one is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []  # of the newest checkpoint, oldest rows first

    def write_new(self, buffer: ReplayBuffer) -> None:
        """Write the rows that no file of the newest checkpoint holds.

        Raises:
            RunError: the disk refused; what was there is untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        since = max([buffer.oldest, *(numbers(name)[1] for name in self.names[-1:])])
        new = write_files(self.folder, since, buffer.rows_added, buffer.row_bytes, buffer.export_rows)
        self.names = [name for name in [*self.names, *new] if numbers(name)[1] > buffer.oldest]

    def state_dict(self, buffer: ReplayBuffer) -> dict[str, Any]:
        """What a checkpoint says of its rows."""
        return {"files": list(self.names), "oldest": buffer.oldest}

    def load_state_dict(self, state: dict[str, Any], buffer: ReplayBuffer) -> None:
        """Read a checkpoint's rows.

        Raises:
            UserError: a file is missing or damaged.
        """
        self.names = list(state["files"])
        for since, rows in read_files(self.folder, self.names):
            buffer.import_rows(since, rows)
        buffer.forget(state["oldest"])

    def remove_all_but(self, kept: Iterable[str]) -> None:
        """Delete what no checkpoint needs, and what a killed process left half-written."""
        needed = {*self.names, *kept}
        for path in [*self.folder.glob("rows-*.pt"), *self.folder.glob(".rows-*.part")]:
            if path.name not in needed:
                path.unlink()
