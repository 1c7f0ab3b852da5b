"""Lightning's way to disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import CheckpointIO
from lightning_fabric.utilities.types import _PATH

from lit_dqn.checkpoint_file import read_checkpoint
from lit_dqn.files import write_atomically


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's way to disk: a temporary file, fsync, rename; reads run no code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any = None) -> None:
        assert storage_options is None, "local files only"
        write_atomically(Path(path), lambda file: torch.save(checkpoint, file))

    def load_checkpoint(
        self,
        path: _PATH,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """See `read_checkpoint`; tensors always come to the CPU first."""
        assert weights_only, "pass weights_only=True explicitly"
        return read_checkpoint(Path(path), mmap=False)

    def remove_checkpoint(self, path: _PATH) -> None:
        Path(path).unlink(missing_ok=True)
