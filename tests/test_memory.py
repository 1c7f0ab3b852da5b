"""What a replay takes of memory is asked before it is allocated."""

from __future__ import annotations

import psutil
import pytest
import torch

from lit_dqn.errors import UserError
from lit_dqn.replay import memory
from lit_dqn.replay.prioritized import PrioritizedReplay
from lit_dqn.replay.uniform import UniformReplay

ATARI = ((84, 84), torch.uint8, 1, 0.99, 0)


@pytest.mark.parametrize("cls", [UniformReplay, PrioritizedReplay])
def test_a_replay_that_does_not_fit_is_refused_with_the_numbers_and_what_would_fit(cls, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2 * 10**9)
    expected = r"buffer\.capacity=1000000 takes 7\.0\d GB of memory on cpu, and 2 GB is free; "
    with pytest.raises(
        UserError, match=expected + r"type buffer\.capacity=280000 or less, or buffer\.allow_ov"
    ):
        cls(*ATARI, capacity=1_000_000)
    cls(*ATARI, capacity=280_000)


def test_one_may_insist(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10)
    with pytest.raises(UserError, match="is free"):
        UniformReplay(*ATARI, capacity=1000)
    assert UniformReplay(*ATARI, capacity=1000, allow_overcommit=True).buffer.length == 1000


def test_an_atari_transition_takes_at_most_7300_bytes():
    for cls in (UniformReplay, PrioritizedReplay):
        replay = cls(*ATARI, capacity=1000, frame_stack=4)
        tensors = [*replay.buffer._read.values(), *getattr(getattr(replay, "tree", None), "_levels", [])]
        assert sum(t.nbytes for t in tensors) / 1000 <= 7300


def test_a_containers_limit_counts_where_it_is_below_the_machines(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    machine = psutil.virtual_memory().available
    assert memory.free_bytes(torch.device("cpu")) == pytest.approx(machine, rel=0.2)
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes(torch.device("cpu")) == pytest.approx(machine, rel=0.2)
    (tmp_path / "memory.max").write_text("1300\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50\nactive_file 7\n")
    assert memory.free_bytes(torch.device("cpu")) == 1050


def test_a_gpu_that_is_not_there_is_refused_by_key(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"buffer\.device=cuda: no GPU .* type buffer\.device=cpu or auto"):
        UniformReplay(*ATARI, capacity=1000, device="cuda")
    assert UniformReplay(*ATARI, capacity=1000, device="auto").buffer.device.type == "cpu"
