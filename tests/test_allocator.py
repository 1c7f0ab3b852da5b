"""Freed blocks are used again without asking the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from lit_dqn import allocator

GLIBC = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")
ROUNDS = """
import resource, sys, torch
from lit_dqn.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def batch():
    for block in [torch.empty(20 << 20, dtype=torch.uint8) for _ in range(6)]:
        block.fill_(1)
for _ in range(12):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not GLIBC, reason="there is no mallopt")
def test_a_batch_of_large_blocks_is_not_paged_in_anew_every_time(monkeypatch):
    for name in allocator.BY_USER:
        monkeypatch.delenv(name, raising=False)
    faults = {
        how: int(subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, check=True).stdout)
        for how in ("keep", "return")
    }
    assert faults["keep"] < faults["return"] / 5


def test_the_environment_s_own_setting_is_what_stops_it(monkeypatch):
    asked = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    for name in allocator.BY_USER:
        monkeypatch.delenv(name, raising=False)
    allocator.keep_freed_memory()
    assert asked == [None]


@pytest.mark.parametrize("where", ["another system", "an environment that says how"])
def test_elsewhere_nothing_is_set(monkeypatch, where):
    if where == "another system":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    asked = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    allocator.keep_freed_memory()
    assert asked == []
