"""How the C library keeps memory between one batch and the next."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt(3)
KEPT, FROM_HEAP = 256 << 20, 32 << 20  # bytes; the second is the most glibc accepts


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 32 MiB, and keep up to 256 MiB of them.

    By default it returns what is freed to the system, and a batch of pixels or activations is paged in anew
    every time: half the time of a round of Atari frames. Does nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT)
        mallopt(MMAP_THRESHOLD, FROM_HEAP)
