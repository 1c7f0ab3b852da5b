"""Processes killed between save, log and evaluation, then resumed: the run equals one that was left alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lit_dqn.checkpoint_file import read_checkpoint
from runs import assert_equal_runs, config, last, metrics, outcome, run

# Points at 60, 120, ...; evaluations at 80, 160, 240, ...; checkpoints at 120, 240, 360: some coincide.
SCHEDULE = ["env=cartpole", "evaluation.interval=80", "checkpoint.interval=120"]

SAVING = "lit_dqn.checkpointing:AtomicCheckpointIO.save_checkpoint"
PLACES = {
    "after a point that falls between checkpoints": ("lit_dqn.callbacks.points:Recorder.record", "after", 6),
    "after the point of a checkpoint's round": ("lit_dqn.callbacks.points:Points._write", "after", 5),
    "before the evaluation of a checkpoint's round": ("lit_dqn.evaluation:Evaluator.__call__", "before", 3),
    "after the evaluation of a checkpoint's round": ("lit_dqn.evaluation:Evaluator.__call__", "after", 3),
    "after the score of a checkpoint's round": ("lit_dqn.callbacks.evaluation:Evaluation._take", "after", 3),
    "during an evaluation between checkpoints": ("lit_dqn.evaluation:Evaluator._episodes", "before", 3),
    "before a checkpoint": ("lit_dqn.callbacks.checkpoints:Checkpoints.save", "before", 2),
    "in a checkpoint, with its file begun": (f"{SAVING} > torch:save", "before", 2),
    "in a checkpoint, with its file whole": (f"{SAVING} > os:fsync", "after", 3),
    "after a checkpoint, before older ones go": (
        "lit_dqn.callbacks.checkpoints:Checkpoints._keep_some",
        "before",
        2,
    ),
    "after a checkpoint": ("lit_dqn.callbacks.checkpoints:Checkpoints.save", "after", 2),
    "in the middle of collecting": ("lit_dqn.experience:ExperienceSource._step", "after", 160),
    "in the middle of a round's updates": ("lit_dqn.learner:Learner.update", "after", 29),
    "before the last evaluation": ("lit_dqn.evaluation:Evaluator.__call__", "before", 5),
    "at the very end": ("lit_dqn.training:write_json", "before", 6),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kills") / "whole"
    run(folder, *SCHEDULE, "checkpoint.keep=2")
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_run_resumes_as_if_nothing_had_happened(place, whole, fork_server, tmp_path):
    folder, values = tmp_path / "run", [*SCHEDULE, "checkpoint.keep=2"]
    status = fork_server.run(
        config=OmegaConf.to_container(config(*values)),
        folder=str(folder),
        output=str(tmp_path / "output"),
        at=[*PLACES[place], ["SIGKILL"]],
    )
    assert status == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert read_checkpoint(last(folder))["learner"]["env_step"] >= 120
    run(folder, *values, f"resume={last(folder)}")
    assert_equal_runs(whole, folder)
    assert not list(folder.rglob(".*.part"))


def test_a_run_killed_again_and_again_resumes_as_if_nothing_had_happened(whole, fork_server, tmp_path):
    folder, resume = tmp_path / "run", []
    for place in ("after a point that falls between checkpoints", "in the middle of a round's updates"):
        status = fork_server.run(
            config=OmegaConf.to_container(config(*SCHEDULE, *resume)),
            folder=str(folder),
            output=str(tmp_path / "output"),
            at=[*PLACES[place][:2], 6, ["SIGKILL"]],
        )
        assert status == -signal.SIGKILL, (tmp_path / "output").read_text()
        resume = [f"resume={last(folder)}"]
    run(folder, *SCHEDULE, *resume)
    assert_equal_runs(whole, folder)


def test_a_process_that_is_left_alone_equals_this_one(whole, fork_server, tmp_path):
    status = fork_server.run(
        config=OmegaConf.to_container(config(*SCHEDULE)),
        folder=str(tmp_path / "run"),
        output=str(tmp_path / "output"),
    )
    assert status == 0, (tmp_path / "output").read_text()
    assert_equal_runs(whole, tmp_path / "run")
    assert metrics(whole)
    assert outcome(whole)["result"]["finished"]
