"""metrics.csv and TensorBoard hold the same numbers, at exact env steps; files are whole or not there."""

from __future__ import annotations

import itertools
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.summary.writer import event_file_writer

from lit_dqn.callbacks.points import CURVES
from lit_dqn.errors import RunError
from lit_dqn.files import MetricsFile, link_or_copy, write_atomically, write_json
from runs import last, metrics, run

pytestmark = pytest.mark.filterwarnings(
    # TensorBoard's reader, not ours: NumPy aliases and protobuf's old interface.
    "ignore::DeprecationWarning:tensorboard.*",
)
SCHEDULE = ["env=cartpole", "evaluation.interval=150", "checkpoint.interval=50"]


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """{tag: [(step, value)]} as TensorBoard shows them."""
    accumulator = events(folder)
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
        if not tag.startswith("hparam/")
    }


def columns(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The same from metrics.csv; TensorBoard has 32 bits for a value."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in metrics(folder, clock=True):
        for tag, value in row.items():
            if tag != "env_step" and value:
                found[tag].append((int(row["env_step"]), float(np.float32(value))))
    return dict(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("curves") / "whole"
    run(folder, *SCHEDULE)
    return folder


@pytest.fixture
def event_files_in_order(monkeypatch):
    """Event files are read in the order of their names, which hold whole seconds: let no two share one."""
    clock = itertools.count(2_000_000_000)
    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=lambda: float(next(clock))))


def test_tensorboard_and_the_metrics_file_hold_the_same_points(whole):
    assert curves(whole) == columns(whole)
    assert set(curves(whole)) == {*CURVES} - {"buffer/beta"}  # of prioritised replay


def test_the_curves_are_those_that_are_promised(whole):
    assert {
        *("eval/return_mean", "eval/return_std", "eval/length_mean", "eval/random_return"),
        *("episode/return", "episode/length", "buffer/size"),
        *("train/loss", "train/td_error", "train/q_mean", "train/epsilon", "train/grad_norm"),
        *("time/env_steps_per_second", "time/updates_per_second"),
    } <= set(CURVES)
    assert (whole / "metrics.csv").read_text().split(",")[0] == "env_step"


def test_points_fall_on_the_first_round_at_or_beyond_their_interval(tmp_path):
    run(tmp_path / "run", "env=cartpole", "experience.num_envs=1", "trainer.log_interval=50")
    rows = metrics(tmp_path / "run")
    training = [int(row["env_step"]) for row in rows if row["train/loss"]]
    assert training == [60, 100, 160, 200, 260, 300, 360, 400]  # rounds end at 60, 80, 100, ...
    assert [int(row["env_step"]) for row in rows if row["eval/return_mean"]] == [200, 400]


def test_a_short_run_has_points(tmp_path):
    run(tmp_path / "run", "env=cartpole", "total_env_steps=60", "trainer.log_interval=1000")
    rows = metrics(tmp_path / "run")
    assert any(row["train/loss"] for row in rows)
    assert any(row["eval/return_mean"] for row in rows)
    assert curves(tmp_path / "run") == columns(tmp_path / "run")


def test_an_episode_curve_has_no_point_when_no_episode_ended(tmp_path):
    run(tmp_path / "run", "env=mountaincar", "total_env_steps=100", "evaluation.episodes=0")
    assert all(row["episode/return"] == "" for row in metrics(tmp_path / "run"))
    assert "episode/return" not in curves(tmp_path / "run")


def test_steps_beyond_float32_are_exact(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "tensorboard")) as writer:
        writer.add_scalar("a", 1.0, 2**24 + 1)
    assert events(tmp_path).Scalars("a")[0].step == 2**24 + 1


def test_after_a_resume_the_curves_are_those_of_one_run(whole, tmp_path, event_files_in_order):
    folder = tmp_path / "run"
    run(folder, *SCHEDULE, "total_env_steps=200")
    assert curves(folder) == columns(folder)
    assert any(step == 200 for step, _ in curves(folder)["eval/return_mean"])  # off the schedule
    run(folder, *SCHEDULE, f"resume={last(folder)}")
    assert curves(folder) == columns(folder)
    steps = {tag: [step for step, _ in points] for tag, points in curves(whole).items()}
    assert {tag: [step for step, _ in points] for tag, points in curves(folder).items()} == steps


def test_points_of_the_checkpoints_own_step_survive_a_resume(tmp_path, event_files_in_order):
    schedule = ["env=cartpole", "evaluation.interval=100", "trainer.log_interval=50"]
    run(tmp_path / "run", *schedule, "total_env_steps=200")
    before = columns(tmp_path / "run")
    run(tmp_path / "other", *schedule, f"resume={last(tmp_path / 'run')}")
    after = columns(tmp_path / "other")
    assert curves(tmp_path / "other") == after
    assert {tag: points[: len(before[tag])] for tag, points in after.items() if tag in before} == before


def test_the_hparams_entry_has_the_best_evaluation(whole):
    metadata = events(whole).summary_metadata
    assert {"_hparams_/experiment", "_hparams_/session_start_info"} <= set(metadata)
    session = metadata["_hparams_/session_start_info"].plugin_data.content
    values = plugin_data_pb2.HParamsPluginData.FromString(session).session_start_info.hparams
    assert values["env.id"].string_value == "CartPole-v1"
    best = max(float(row["eval/return_mean"]) for row in metrics(whole) if row["eval/return_mean"])
    (point,) = events(whole).Scalars("hparam/best_eval_return")
    assert point.value == pytest.approx(best)


def test_a_best_evaluation_of_zero_is_zero(tmp_path):
    run(tmp_path / "run", "env=gym", "env.id=FrozenLake-v1", "total_env_steps=100")
    best = max(float(row["eval/return_mean"]) for row in metrics(tmp_path / "run") if row["eval/return_mean"])
    assert [point.value for point in events(tmp_path / "run").Scalars("hparam/best_eval_return")] == [best]


def test_lightnings_own_metric_is_never_written(whole):
    assert "hp_metric" not in events(whole).Tags()["scalars"]


def test_tensorboard_can_be_off(tmp_path):
    run(tmp_path / "run", "env=cartpole", "total_env_steps=100", "logger.tensorboard=false")
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert metrics(tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_the_run_and_is_named(tmp_path, monkeypatch):
    from lit_dqn.learner import Learner

    update, calls = Learner.update, []

    def diverging(self, batch, step):
        calls.append(0)
        return update(self, batch if len(calls) != 20 else replace(batch, reward=batch.reward / 0), step)

    monkeypatch.setattr(Learner, "update", diverging)
    with pytest.raises(RunError, match=r"train/\w+ is nan: training has diverged"):
        run(tmp_path / "run", *SCHEDULE, "trainer.log_interval=1000")
    healthy = torch.load(last(tmp_path / "run"), weights_only=True)
    assert healthy["learner"]["updates"] < 20
    assert all(value.isfinite().all() for value in healthy["state_dict"].values())


def test_the_metrics_file_keeps_numbers_exactly(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv", ["a", "b"])
    file.write(2**40 + 1, {"a": 0.1 + 0.2, "b": -1e-300})
    length = file.length()
    file.write(2**40 + 2, {"b": 1.0})
    file.truncate(length)
    assert file.rows_at(2**40 + 1) == [{"a": 0.1 + 0.2, "b": -1e-300}]
    assert file.rows_at(2**40 + 2) == []
    file.write(2**40 + 3, {"a": 2.0})
    file.close()
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "env_step,a,b",
        "1099511627777,0.30000000000000004,-1e-300",
        "1099511627779,2.0,",
    ]


def test_a_metrics_file_is_gone_on_with(tmp_path):
    for step in (1, 2):
        file = MetricsFile(tmp_path / "metrics.csv", ["a"])
        file.write(step, {"a": 1.0})
        file.close()
    assert (tmp_path / "metrics.csv").read_text() == "env_step,a\n1,1.0\n2,1.0\n"


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("file write failed"), KeyboardInterrupt()]
)
def test_a_failed_write_leaves_the_old_file_whole_and_nothing_else(error, tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half")
        raise error

    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else RunError
    with pytest.raises(expected) as raised:
        write_atomically(path, fail)
    if expected is RunError:
        assert "untouched" in str(raised.value)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_is_full_ends_the_run_and_the_last_checkpoint_is_whole(tmp_path, monkeypatch):
    save, calls = torch.save, []

    def full(content, file):
        calls.append(0)
        if len(calls) == 3:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        save(content, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunError, match="No space left"):
        run(tmp_path / "run", *SCHEDULE, "evaluation.episodes=0")
    monkeypatch.undo()
    folder = tmp_path / "run"
    assert not list(folder.rglob(".*.part"))
    run(folder, *SCHEDULE, "evaluation.episodes=0", f"resume={last(folder)}")
    assert int(metrics(folder)[-1]["env_step"]) >= 400


def test_a_result_is_never_half_a_number(tmp_path):
    write_json(tmp_path / "result.json", {"a": 1.5, "b": None})
    assert (tmp_path / "result.json").read_text() == '{\n  "a": 1.5,\n  "b": null\n}\n'
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "result.json", {"a": float("nan")})


def test_a_file_is_linked_or_copied_into_place(tmp_path, monkeypatch):
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    link_or_copy(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two").samefile(tmp_path / "one")
    link_or_copy(tmp_path / "one", tmp_path / "two")

    def no_links(*_):
        raise OSError("not on this disk")

    monkeypatch.setattr("os.link", no_links)
    link_or_copy(tmp_path / "one", tmp_path / "three")
    assert (tmp_path / "three").read_text() == "1"
    assert not (tmp_path / "three").samefile(tmp_path / "one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "three", "two"]


def test_a_run_folder_can_be_moved_and_resumed_there(tmp_path):
    run(tmp_path / "run", *SCHEDULE, "total_env_steps=200")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    values = run(tmp_path / "moved", *SCHEDULE, f"resume={last(tmp_path / 'moved')}")
    assert values["finished"]
    assert not (tmp_path / "run").exists()
