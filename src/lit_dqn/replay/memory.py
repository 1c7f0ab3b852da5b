"""What a replay takes of memory, and whether it is free."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from lit_dqn.errors import UserError

CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken on a device: of a container, where its limit is below the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [int(psutil.virtual_memory().available)]
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            left = int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text())
            statistics = (CGROUP / limit).with_name("memory.stat").read_text().split()
            # Cached files are given up when memory is asked for.
            free.append(left + int(statistics[statistics.index(cache) + 1]))
        except (OSError, ValueError):  # no such file, or `max`: no limit
            continue
    return max(0, min(free))


def check_memory(needed: int, capacity: int, device: torch.device, allow_overcommit: bool) -> None:
    """Refuse a replay that does not fit.

    Args:
        needed: bytes it will take.
        capacity: rows, for the message.

    Raises:
        UserError: with what it needs, what is free, and what would fit.
    """
    free = free_bytes(device)
    if needed > free and not allow_overcommit:
        fits = capacity * free // needed
        raise UserError(
            f"buffer.capacity={capacity} takes {_gigabytes(needed)} of memory on {device}, and "
            f"{_gigabytes(free)} is free; type buffer.capacity={_rounded(fits)} or less, "
            "or buffer.allow_overcommit=true to insist."
        )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _rounded(count: int) -> int:
    """Down to two figures."""
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return count // unit * unit
