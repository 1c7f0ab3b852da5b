"""How the C library keeps memory between one batch and the next."""

from __future__ import annotations

import ctypes
import os
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt(3)
KEPT, FROM_HEAP = 256 << 20, 32 << 20  # bytes; the second is the most glibc accepts
BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 32 MiB instead of returning them to the system at once.

    A round of pixels, or of activations, is several blocks of some MiB; returned, they are paged in anew
    every time, which is half the time of a round of Atari frames. The process keeps what its largest moment
    took, where that lies below blocks in use. Holds for the whole process. Does nothing where there is no
    glibc, or where the environment says how it allocates.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT)
        mallopt(MMAP_THRESHOLD, FROM_HEAP)
