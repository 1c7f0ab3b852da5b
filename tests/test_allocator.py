"""Freed blocks are used again without asking the system."""

from __future__ import annotations

import ctypes
import sys

import pytest
import torch

from lit_dqn.allocator import keep_freed_memory

GLIBC = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")


@pytest.mark.skipif(not GLIBC, reason="there is no mallopt")
def test_a_batch_of_pixels_is_not_paged_in_anew_every_time():
    import resource

    def faults(batches):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(batches):
            torch.empty(9 << 20, dtype=torch.uint8).fill_(1)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    keep_freed_memory()
    faults(2)
    assert faults(20) < 2 * (9 << 20) // resource.getpagesize()  # unkept: 20 times its pages


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: pytest.fail("asked for the C library"))
    keep_freed_memory()
