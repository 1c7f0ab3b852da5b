"""Checkpoint files: what is in them, and how they are read without running code.

Everything in a checkpoint is a tensor or a plain container. `last.ckpt` is resumable: Lightning's loops and
optimizer, the learner, the callbacks and the experience, whose rows are in files of their own. `best.ckpt`
holds what `load` needs.
"""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lit_dqn.errors import UserError

HEADER = "lit_dqn"  # the key of what is ours: format, config, env, spaces
DATA = "ReplayDataModule"  # where Lightning puts the experience
REPLAY, ROWS = "replay", "rows"  # keys in it
FORMAT = 3


def read_checkpoint(path: Path, mmap: bool = True) -> dict[str, Any]:
    """The content of one of our checkpoints, on the CPU.

    Args:
        mmap: leave tensors on the disk until they are looked at, so that the replay costs nothing here.

    Raises:
        UserError: there is no such file, or it is not one of ours.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such checkpoint file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wonders aloud about files of other kinds
            checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # whatever a file that is no checkpoint makes the reader stumble over
        raise UserError(f"{path} is no lit_dqn checkpoint, or is damaged; nothing in it was run.") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(HEADER), dict):
        raise UserError(f"{path} is no lit_dqn checkpoint: it does not hold its configuration.")
    if checkpoint[HEADER].get("format") != FORMAT:
        raise UserError(
            f"{path} has checkpoint format {checkpoint[HEADER].get('format')}, this version reads {FORMAT}."
        )
    missing = _missing(checkpoint)
    if missing is not None:
        raise UserError(f"{path} is no lit_dqn checkpoint, or is damaged: it has no {missing}.")
    return checkpoint


def _missing(checkpoint: dict[str, Any]) -> str | None:
    """What every checkpoint of ours holds and this one does not."""
    needed = ["state_dict", "learner.env_step", f"{HEADER}.spaces.observation", f"{HEADER}.spaces.action"]
    needed += [f"{HEADER}.config.{group}._target_" for group in ("env", "agent", "network", "buffer")]
    for name in needed:
        value: Any = checkpoint
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            return name
    return None


def is_resumable(checkpoint: dict[str, Any]) -> bool:
    """Whether training can go on from it (`best.ckpt` cannot)."""
    return REPLAY in checkpoint.get(DATA, {})


def row_files(checkpoint: dict[str, Any]) -> list[str]:
    """Names of the files of rows, in `replay/` beside the checkpoint, that resuming it needs."""
    names: list[str] = checkpoint[DATA][REPLAY][ROWS]["files"] if is_resumable(checkpoint) else []
    return names


def check_row_files(path: Path, checkpoint: dict[str, Any]) -> list[str]:
    """The checkpoint's `row_files`, all of them there and whole as far as can be told without reading them.

    Raises:
        UserError: one is missing or cut off.
    """
    names = row_files(checkpoint)
    for file in (path.parent / REPLAY / name for name in names):
        if not file.is_file() or not zipfile.is_zipfile(file):
            raise UserError(
                f"{file} is {'damaged' if file.is_file() else 'missing'}: resuming {path} needs its replay; "
                f"type init_from={path} to start a new run from its weights."
            )
    return names


def q_net_weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """The online network's state_dict."""
    prefix = "q_net."
    return {k.removeprefix(prefix): v for k, v in checkpoint["state_dict"].items() if k.startswith(prefix)}


def policy_checkpoint(
    header: dict[str, Any], weights: dict[str, Tensor], env_step: int, updates: int
) -> dict[str, Any]:
    """What `best.ckpt` holds: enough for `load`, `mode=eval` and `init_from`."""
    return {
        HEADER: header,
        "state_dict": {f"q_net.{name}": value for name, value in weights.items()},
        "learner": {"env_step": env_step, "updates": updates},
    }
