"""`trainer.gpus` against what the machine has."""

from __future__ import annotations

from lit_dqn.config.words import shown
from lit_dqn.errors import UserError


def device_count() -> int:
    """CUDA devices on this machine."""
    import torch

    return torch.cuda.device_count()


def check_devices(gpus: int | list[int] | str | None) -> None:
    """Refuse GPUs that are not there.

    Raises:
        UserError: says what to type instead.
    """
    if gpus in (None, 0, "auto", []):
        return
    there = device_count()
    if there == 0:
        raise UserError(
            f"trainer.gpus={gpus}: no CUDA device was found; type trainer.gpus=0 to run on the CPU."
        )
    wanted = gpus if isinstance(gpus, list) else list(range(there if gpus == -1 else int(gpus)))
    if any(index >= there for index in wanted):
        raise UserError(
            f"trainer.gpus={shown(gpus)}: this machine has {there} CUDA device(s), numbered from 0."
        )
    if len(wanted) > 1:
        raise UserError(
            f"trainer.gpus={shown(gpus)}: several GPUs are for a later version; type trainer.gpus=1."
        )
