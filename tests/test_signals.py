"""SIGINT and SIGTERM: the round is finished, last.ckpt written, and the way to go on is said."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lit_dqn.callbacks.signals import STOP_SIGNALS
from lit_dqn.errors import Interrupted
from runs import BASE, assert_equal_runs, config, last, load, metrics, result, run

SCHEDULE = ["env=cartpole", "evaluation.interval=80", "checkpoint.interval=120"]
ROUND = "lit_dqn.data:ReplayDataset._next_round"
COLLECTING = "lit_dqn.experience:ExperienceSource._step"
EVALUATION = "lit_dqn.evaluation:Evaluator.__call__ > lit_dqn.evaluation:reset_seeds"  # once in each
CHECKPOINT = "lit_dqn.callbacks.checkpoints:Checkpoints.save"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("signals") / "whole"
    run(folder, *SCHEDULE)
    return folder


@pytest.fixture
def interrupted(fork_server, tmp_path):
    """Trains in a process that sends itself signals; gives its exit status and what it printed."""

    def start(*overrides: str, at: tuple[object, ...]) -> tuple[int, str]:
        status = fork_server.run(
            config=OmegaConf.to_container(config(*overrides)),
            folder=str(tmp_path / "run"),
            output=str(tmp_path / "output"),
            at=at,
        )
        return status, (tmp_path / "output").read_text()

    return start


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_stop_signal_finishes_the_round_and_says_how_to_resume(name, code, fork_server, tmp_path):
    folder, output = tmp_path / "a run", tmp_path / "output"
    words = [*BASE, *SCHEDULE, f'hydra.run.dir="{folder}"']
    status = fork_server.run(words=words, output=str(output), at=[COLLECTING, "after", 47, [name]])
    assert status == code, output.read_text()
    checkpoint = load(last(folder))
    assert checkpoint["learner"]["env_step"] >= 80
    assert checkpoint["learner"]["updates"] == 2 * checkpoint["global_step"], "a round was cut short"
    assert "Traceback" not in output.read_text()
    typed = shlex.split(output.read_text().strip().splitlines()[-1])
    assert typed[:3] == ["python", "-m", "lit_dqn"]
    output.unlink()
    assert fork_server.run(words=typed[3:], output=str(output)) == 0, output.read_text()
    assert result(folder)["finished"]
    assert int(metrics(folder)[-1]["env_step"]) >= 400


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_before_the_first_round_there_is_nothing_to_resume_and_it_says_so(name, code, fork_server, tmp_path):
    folder, output = tmp_path / "run", tmp_path / "output"
    words = [*BASE, *SCHEDULE, f"hydra.run.dir={folder}"]
    status = fork_server.run(words=words, output=str(output), at=[COLLECTING, "after", 3, [name]])
    assert status == code, output.read_text()
    assert "there is nothing to resume" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert not last(folder).exists()


@pytest.mark.parametrize(
    "at",
    [
        pytest.param((ROUND, "after", 4), id="in a round of a checkpoint"),
        pytest.param((CHECKPOINT, "before", 2), id="before a checkpoint after an evaluation"),
        pytest.param((CHECKPOINT, "after", 2), id="after a checkpoint after an evaluation"),
        pytest.param((EVALUATION, "after", 3), id="in the evaluation of a round of a checkpoint"),
        pytest.param(("lit_dqn.evaluation:Evaluator.__call__", "after", 5), id="after the last evaluation"),
    ],
)
def test_a_run_stopped_at_a_scheduled_checkpoint_equals_one_that_was_not(at, whole, interrupted, tmp_path):
    status, output = interrupted(*SCHEDULE, at=(*at, ["SIGTERM"]))
    assert status == 143, output
    folder = tmp_path / "run"
    assert load(last(folder))["learner"]["env_step"] in (*range(120, 122), *range(240, 242), *range(400, 402))
    run(folder, *SCHEDULE, f"resume={last(folder)}")
    assert_equal_runs(whole, folder)


def test_an_evaluation_that_a_signal_stopped_is_done_again_on_resume(interrupted, tmp_path):
    folder = tmp_path / "run"
    status, output = interrupted(*SCHEDULE, at=(EVALUATION, "after", 2, ["SIGINT"]))
    assert status == 130, output
    assert load(last(folder))["callbacks"]["Evaluation"]["given_up"]
    before = [row["env_step"] for row in metrics(folder) if row["eval/return_mean"]]
    run(folder, *SCHEDULE, f"resume={last(folder)}")
    after = [row["env_step"] for row in metrics(folder) if row["eval/return_mean"]]
    assert after[: len(before)] == before
    assert [int(env_step) // 80 for env_step in after] == [1, 2, 3, 4, 5]


def test_an_evaluation_that_a_signal_stopped_is_not_done_again_once_it_is_off(interrupted, tmp_path):
    folder = tmp_path / "run"
    status, output = interrupted(*SCHEDULE, at=(EVALUATION, "after", 1, ["SIGINT"]))
    assert status == 130, output
    run(folder, *SCHEDULE, "evaluation.episodes=0", f"resume={last(folder)}")
    assert not any(row["eval/return_mean"] for row in metrics(folder))


def test_the_last_evaluation_can_be_stopped_and_is_done_again(interrupted, tmp_path):
    schedule = ["env=cartpole", "evaluation.interval=1000"]
    run(tmp_path / "whole", *schedule)
    status, output = interrupted(*schedule, at=(EVALUATION, "after", 1, ["SIGINT"]))
    assert status == 130, output
    run(tmp_path / "run", *schedule, f"resume={last(tmp_path / 'run')}")
    assert_equal_runs(tmp_path / "whole", tmp_path / "run")


def test_the_random_baseline_can_be_stopped(interrupted, tmp_path):
    at = ("lit_dqn.evaluation:Evaluator.random_baseline > lit_dqn.evaluation:check_finite", "after", 2)
    status, output = interrupted(*SCHEDULE, at=(*at, ["SIGTERM"]))
    assert status == 143, output
    assert not last(tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_second_signal_stops_at_once(name, interrupted, tmp_path):
    status, _ = interrupted(*SCHEDULE, at=(COLLECTING, "after", 100, [name, name]))
    assert status == -getattr(signal, name)
    assert load(last(tmp_path / "run"))["learner"]["env_step"] in (120, 121)


def test_a_run_stopped_off_the_schedule_goes_on_exactly_from_there(interrupted, tmp_path):
    status, output = interrupted(*SCHEDULE, at=(ROUND, "after", 9, ["SIGINT"]))
    assert status == 130, output
    start = last(tmp_path / "run")
    run(tmp_path / "one", *SCHEDULE, f"resume={start}")
    run(tmp_path / "other", *SCHEDULE, f"resume={start}")
    assert_equal_runs(tmp_path / "one", tmp_path / "other")


def test_signal_handlers_are_as_before_after_a_run(tmp_path, monkeypatch):
    def mine(*_: object) -> None: ...

    before = {signum: signal.signal(signum, mine) for signum in STOP_SIGNALS}
    try:
        run(tmp_path / "run", *SCHEDULE)
        assert all(signal.getsignal(signum) is mine for signum in STOP_SIGNALS)
        monkeypatch.setattr("lit_dqn.learner.Learner.update", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "fails", *SCHEDULE)
        assert all(signal.getsignal(signum) is mine for signum in STOP_SIGNALS)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def test_default_handlers_come_back_too(tmp_path):
    before = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
    run(tmp_path / "run", *SCHEDULE)
    assert {signum: signal.getsignal(signum) for signum in STOP_SIGNALS} == before


def test_train_raises_interrupted_with_the_exit_code(tmp_path, monkeypatch):
    from lit_dqn.data import ReplayDataset

    def signalled(self: ReplayDataset) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return next_round(self)

    next_round = ReplayDataset._next_round
    monkeypatch.setattr(ReplayDataset, "_next_round", signalled)
    with pytest.raises(Interrupted) as stop:
        run(tmp_path / "run", *SCHEDULE)
    assert stop.value.exit_code == 143


def test_a_run_outside_the_main_thread_leaves_signals_alone(tmp_path):
    done = []
    thread = threading.Thread(target=lambda: done.append(run(tmp_path / "run", *SCHEDULE)))
    thread.start()
    thread.join()
    assert done[0]["finished"]
