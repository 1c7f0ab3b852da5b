"""Rows on the disk: files, a run's segments, and a replay saved as a dataset by itself."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch

from lit_dqn.errors import UserError
from lit_dqn.replay import row_files
from lit_dqn.replay.buffer import ReplayBuffer
from lit_dqn.replay.row_files import numbers, read_rows, write_rows
from lit_dqn.replay.segments import Segments


def buffer_of(obs_dtype=torch.uint8, length=20, **options):
    return ReplayBuffer((6, 4), obs_dtype, 2, capacity=2 * length, **options)


def fill(buffer, rows, seed=0):
    random = np.random.default_rng(seed)
    for _ in range(rows):
        obs = random.integers(0, 255, size=(2, 6, 4)).astype(buffer.obs.numpy().dtype)
        ended = random.random(2) < 0.2
        buffer.add(
            obs, random.integers(3, size=2), random.normal(size=2), ended, ended, random.random(2) < 0.8
        )
    return buffer


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def rows_of(buffer):
    return buffer.export_rows(buffer.oldest)


def assert_same_rows(one, other):
    assert (one.oldest, one.rows_added) == (other.oldest, other.rows_added)
    for name, column in rows_of(one).items():
        there = rows_of(other)[name]
        assert column.dtype == there.dtype
        assert torch.equal(column, there)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_file_gives_back_every_bit(dtype, tmp_path):
    rows = rows_of(fill(buffer_of(dtype), 13))
    write_rows(tmp_path / "rows.pt", rows)
    read = read_rows(tmp_path / "rows.pt")
    assert read.keys() == rows.keys()
    for name, column in rows.items():
        assert torch.equal(read[name], column)
    assert names_in(tmp_path) == ["rows.pt"]


def test_pixels_are_compressed(tmp_path):
    buffer = ReplayBuffer((84, 84), torch.uint8, 1, capacity=100)
    frame, no = np.zeros((1, 84, 84), dtype=np.uint8), np.array([False])
    for t in range(100):
        frame[0, t % 80 : t % 80 + 4] = 200
        buffer.add(frame, no, no, no, no, ~no)
    write_rows(tmp_path / "rows.pt", rows_of(buffer))
    assert (tmp_path / "rows.pt").stat().st_size < buffer.obs.nbytes / 10


@pytest.mark.parametrize("damage", [b"", b"no file of rows", "cut", "pickle"])
def test_a_damaged_file_is_refused_by_its_name_and_nothing_in_it_runs(damage, tmp_path):
    path = tmp_path / "rows.pt"
    write_rows(path, rows_of(fill(buffer_of(), 13)))
    if damage == "cut":
        damage = path.read_bytes()[:-200]
    elif damage == "pickle":

        class Runs:
            def __reduce__(self):
                return (os.mkdir, (str(tmp_path / "it_ran"),))

        damage = pickle.dumps({"obs": Runs()})
    path.write_bytes(damage)
    with pytest.raises(UserError, match=r"rows\.pt is damaged"):
        read_rows(path)
    assert not (tmp_path / "it_ran").exists()


def test_a_checkpoint_writes_the_new_rows_only_and_drops_files_that_the_ring_has_left(tmp_path, monkeypatch):
    written, write = [], row_files.write_rows

    def counted(path, rows):
        written.append(len(rows["obs"]))
        write(path, rows)

    monkeypatch.setattr(row_files, "write_rows", counted)
    buffer, segments = buffer_of(length=20), Segments(tmp_path / "replay")
    for count in (5, 7, 0, 6, 9, 30):
        fill(buffer, count)
        segments.write_new(buffer)
        segments.remove_all_but([])
        assert sum(written) == min(count, 20)
        written.clear()
        assert names_in(tmp_path / "replay") == segments.names
        assert all(numbers(name)[1] > buffer.oldest for name in segments.names)
        copy = buffer_of(length=20)
        Segments(tmp_path / "replay").load_state_dict(segments.state_dict(buffer), copy)
        assert_same_rows(buffer, copy)


def test_large_replays_are_written_in_parts(tmp_path, monkeypatch):
    buffer, segments = fill(buffer_of(length=20), 30), Segments(tmp_path)
    monkeypatch.setattr(row_files, "FILE_BYTES", 3 * buffer.row_bytes)
    segments.write_new(buffer)
    assert [numbers(name)[1] - numbers(name)[0] for name in segments.names] == [3] * 6 + [2]
    copy = buffer_of(length=20)
    Segments(tmp_path).load_state_dict(segments.state_dict(buffer), copy)
    assert_same_rows(buffer, copy)


def test_files_that_another_checkpoint_needs_stay_and_half_written_ones_go(tmp_path):
    buffer, segments = buffer_of(length=6), Segments(tmp_path)
    fill(buffer, 6)
    segments.write_new(buffer)
    older = list(segments.names)
    (tmp_path / ".rows-000000000000-000000000009.pt.part").touch()
    (tmp_path / "rows-000000000000-000000000099.pt").touch()  # of a process that died before its checkpoint
    fill(buffer, 6)
    segments.write_new(buffer)
    segments.remove_all_but(older)
    assert names_in(tmp_path) == sorted([*older, *segments.names])
    assert len(segments.names) == len(older) == 1


def test_a_missing_file_is_named(tmp_path):
    buffer, segments = fill(buffer_of(), 5), Segments(tmp_path)
    segments.write_new(buffer)
    (tmp_path / segments.names[0]).unlink()
    with pytest.raises(UserError, match=f"{segments.names[0]}: this part of the replay is missing"):
        Segments(tmp_path).load_state_dict(segments.state_dict(buffer), buffer_of())


@pytest.mark.parametrize("name", ["../rows-000000000000-000000000001.pt", "rows-1-2.pt", "/etc/passwd"])
def test_a_checkpoint_cannot_name_files_outside_its_folder(name, tmp_path):
    with pytest.raises(UserError, match="is no name of a file of rows"):
        Segments(tmp_path).load_state_dict({"files": [name], "oldest": 0}, buffer_of())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("rows", [4, 33])
def test_a_replay_saved_as_a_dataset_loads_by_itself(dtype, rows, tmp_path):
    buffer = fill(buffer_of(dtype), rows)
    buffer.save(tmp_path / "data")
    assert_same_rows(ReplayBuffer.load(tmp_path / "data"), buffer)
    other = ReplayBuffer.load(tmp_path / "data", n_step=3, frame_stack=2, capacity=100, gamma=0.5)
    index = torch.arange(*other.candidates())
    index = index[other.eligible(index)]
    assert other.length == 50
    assert other.transitions(index)["obs"].shape[1:] == (2, 6, 4)


def test_a_dataset_does_not_overwrite_and_a_folder_that_is_none_is_refused(tmp_path):
    buffer = fill(buffer_of(), 4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError, match="is not empty"):
        buffer.save(tmp_path / "full")
    with pytest.raises(UserError, match="is no dataset"):
        ReplayBuffer.load(tmp_path / "full")
