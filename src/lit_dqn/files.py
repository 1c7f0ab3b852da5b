"""Files that are there whole or not at all, and the run's own metrics file."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from lit_dqn.errors import RunError


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write to a temporary name, fsync, rename.

    Raises:
        RunError: the disk refused; what was at `path` before is still there.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _fsync_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise RunError(f"{path} could not be written; what was there before is untouched: {error}") from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            temporary.unlink()


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file that never changes also at `target`: by a hard link, or a copy where the disk has none."""
    if target.exists() and target.samefile(source):
        return
    temporary = target.with_name(f".{target.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write an object as indented JSON, atomically."""
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


class MetricsFile:
    """metrics.csv: one row per logged point, the first column is `env_step`, absent values are empty.

    Args:
        path: created with its header if missing.
        columns: the curve names, without `env_step`.
    """

    def __init__(self, path: Path, columns: list[str]) -> None:
        self.columns = ["env_step", *columns]
        if not path.exists():
            path.write_text(self._line(self.columns))
        self._file = path.open("r+", newline="")
        self._file.seek(0, os.SEEK_END)

    @staticmethod
    def _line(values: list[Any]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue()

    def write(self, env_step: int, values: Mapping[str, float]) -> None:
        """Append a row."""
        row = {"env_step": env_step, **values}
        self._file.write(self._line([row.get(column, "") for column in self.columns]))
        self._file.flush()

    def length(self) -> int:
        """Bytes, all of them on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def truncate(self, length: int) -> None:
        """Drop what was written beyond `length` bytes."""
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(min(length, end))  # a lone checkpoint may come without its curves
        self._file.truncate()

    def rows_at(self, env_step: int) -> list[dict[str, float]]:
        """The points at an env step, without their absent values."""
        self._file.seek(0)
        rows = [row for row in csv.DictReader(self._file) if row.pop("env_step") == str(env_step)]
        self._file.seek(0, os.SEEK_END)
        return [{name: float(value) for name, value in row.items() if value} for row in rows]

    def close(self) -> None:
        self._file.close()
