"""Files of rows: written once, never changed, read without running code.

A file holds the columns of consecutive rows as tensors. Observations of bytes (pixels) are compressed with
Zstandard at level 1; floats are stored as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import zstandard
from torch import Tensor

from lit_dqn.errors import UserError
from lit_dqn.files import write_atomically, write_json

Rows = dict[str, Tensor]
"""Column name -> [R, N, ...] of R consecutive time steps."""

FILE_BYTES = 64 * 2**20  # of rows in one file, before compression: what is held in memory at a time
LEVEL = 1
HEADER = "dataset.json"
FORMAT = 1


def write_rows(path: Path, rows: Rows) -> None:
    """Write rows to a file, atomically.

    Raises:
        RunError: the disk refused.
    """
    content: dict[str, Any] = dict(rows)
    obs = rows["obs"]
    if obs.dtype == torch.uint8:
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(obs.numpy().data)
        content["obs"] = {
            "shape": list(obs.shape),
            "zstd": torch.frombuffer(bytearray(packed), dtype=torch.uint8),
        }
    write_atomically(path, lambda file: torch.save(content, file))


def read_rows(path: Path) -> Rows:
    """Read a file of `write_rows`.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        obs = content["obs"]
        if isinstance(obs, dict):
            raw = bytearray(zstandard.ZstdDecompressor().decompress(obs["zstd"].numpy().data))
            content["obs"] = torch.frombuffer(raw, dtype=torch.uint8).view(obs["shape"])
        return content
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: this part of the replay is missing; it belongs to the checkpoint."
        ) from error
    except Exception as error:  # whatever a damaged file makes the readers stumble over
        raise UserError(f"{path} is damaged: its rows cannot be read.") from error


def write_files(
    folder: Path, since: int, until: int, row_bytes: int, export: Callable[[int, int], Rows]
) -> list[str]:
    """Write the rows `since` <= r < `until` as files of at most `FILE_BYTES` (or one row) each.

    Args:
        row_bytes: of one time step.
        export: (since, until) -> those rows.

    Returns:
        The names of the files, oldest rows first.
    """
    names = []
    count = max(1, FILE_BYTES // row_bytes)
    for start in range(since, until, count):
        end = min(start + count, until)
        names.append(f"rows-{start:012d}-{end:012d}.pt")
        write_rows(folder / names[-1], export(start, end))
    return names


def numbers(name: str) -> tuple[int, int]:
    """The row numbers (since, until) that a file's name states.

    Raises:
        UserError: it is no such name.
    """
    match = re.fullmatch(r"rows-(\d{12})-(\d{12})\.pt", name)
    if match is None:
        raise UserError(f"{name!r} is no name of a file of rows.")
    return int(match[1]), int(match[2])


def read_files(folder: Path, names: list[str]) -> Iterator[tuple[int, Rows]]:
    """(number of the first row, rows) of each file, in order.

    Raises:
        UserError: a file is missing or damaged.
    """
    for name in names:
        since, _ = numbers(name)
        yield since, read_rows(folder / name)


def write_header(folder: Path, names: list[str], obs_shape: list[int], obs_dtype: str, num_envs: int) -> None:
    """Complete a folder of files as a dataset: what is in it, written last."""
    shape = {"obs_shape": obs_shape, "obs_dtype": obs_dtype, "num_envs": num_envs}
    write_json(folder / HEADER, {"format": FORMAT, **shape, "files": names})


def read_header(folder: Path) -> dict[str, Any]:
    """The header of a dataset.

    Raises:
        UserError: the folder is no dataset.
    """
    path = folder / HEADER
    if not path.is_file():
        raise UserError(f"{folder} is no dataset of replay rows: it has no {HEADER}.")
    header: dict[str, Any] = json.loads(path.read_text())
    if header.get("format") != FORMAT:
        raise UserError(f"{path} has format {header.get('format')}, this version reads {FORMAT}.")
    return header
