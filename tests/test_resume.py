"""A run to N is, bit for bit, a run to N/2 resumed to N."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from conftest import TINY
from lit_dqn import compose, train
from lit_dqn.checkpoint_file import HEADER
from lit_dqn.errors import RunError, UserError
from runs import assert_equal_runs, config, difference, last, load, metrics, outcome, result, run

N = 400
DICT = "env.id=Tests/DictNoise-v0"

CASES = {
    "cartpole, one step, everything coincides": ["env=cartpole"],
    "cartpole, three steps, evaluation twice as often": [
        "env=cartpole",
        "buffer.n_step=3",
        "evaluation.interval=100",
    ],
    "acrobot, one step, checkpoints twice as often": ["env=acrobot", "checkpoint.interval=100"],
    "acrobot, three steps, evaluation not at the half": [
        "env=acrobot",
        "buffer.n_step=3",
        "evaluation.interval=150",
    ],
    "mountaincar, one step, no evaluation before the half": ["env=mountaincar", "evaluation.interval=300"],
    "mountaincar, three steps, intervals that rarely coincide": [
        "env=mountaincar",
        "buffer.n_step=3",
        "evaluation.interval=80",
        "checkpoint.interval=50",
    ],
    "lunarlander, one step, a point every round": ["env=lunarlander", "trainer.log_interval=1"],
    "lunarlander, three steps, several checkpoints kept": [
        "env=lunarlander",
        "buffer.n_step=3",
        "checkpoint.interval=50",
        "checkpoint.keep=3",
    ],
    "prioritised": ["env=cartpole", "buffer=prioritized", "buffer.beta_end_env_steps=300"],
    "prioritised, three steps, stacked, a ring that wraps": [
        "env=cartpole",
        "buffer=prioritized",
        "buffer.n_step=3",
        "buffer.frame_stack=3",
        "buffer.reward_clip=0.5",
        "evaluation.interval=80",
        "checkpoint.interval=50",
    ],
    "stacked bytes": [
        "env=gym",
        "env.id=Trap/SeededNoise-v0",
        "buffer.frame_stack=4",
        "buffer.stack_padding=first",
    ],
    "images, spectral norm, noise, stacked, prioritised": [
        "env=gym",
        "env.id=Tests/ImageNoise-v0",
        "agent=iqn",
        "agent.num_online_taus=2",
        "agent.num_acting_taus=2",
        "agent.target_update_interval=3",
        "network=impala",
        "network.spectral_norm=true",
        "network.noisy=true",
        "buffer=prioritized",
        "buffer.frame_stack=2",
        "evaluation.interval=80",
        "checkpoint.interval=50",
    ],
    "no evaluation at all": ["env=cartpole", "evaluation.episodes=0"],
    "double, dueling, Polyak": [
        "env=cartpole",
        "agent.double=true",
        "network.dueling=true",
        "agent.tau=0.1",
        "agent.target_update_interval=1",
        "agent.loss=huber",
    ],
    "noise and sampled quantiles, prioritised, three steps": [
        "env=cartpole",
        "agent=iqn",
        "agent.double=false",
        "agent.munchausen=true",
        "network.noisy=true",
        "buffer=prioritized",
        "buffer.n_step=3",
        "evaluation.interval=80",
        "checkpoint.interval=50",
    ],
    "RMSProp, decaying learning rate, no clipping": [
        "env=cartpole",
        "optimizer=rmsprop",
        "optimizer.lr_end=0.0",
        "optimizer.lr_decay_env_steps=300",
        "optimizer.max_grad_norm=null",
    ],
    "Discrete observations": ["env=gym", "env.id=FrozenLake-v1", "evaluation.interval=100"],
    "Dict observations": ["env=gym", DICT, "buffer.n_step=3", "evaluation.interval=90"],
    "an env that draws from NumPy's global generator": ["env=gym", "env.id=Trap/LegacyGlobalRng-v0"],
    "the half is reached in a round that was planned to end before it": [
        "env=cartpole",
        "experience.num_envs=8",
        "experience.learning_starts=39",  # the eighth round is planned to end at 199
    ],
    "more envs than env steps per round": [
        "env=cartpole",
        "experience.num_envs=16",
        "experience.steps_per_round=5",
        "buffer.capacity=400",
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_equals_its_first_half_resumed(case, tmp_path):
    overrides = CASES[case]
    run(tmp_path / "whole", *overrides)
    run(tmp_path / "parts", *overrides, f"total_env_steps={N // 2}")
    run(tmp_path / "parts", *overrides, f"resume={last(tmp_path / 'parts')}")
    assert_equal_runs(tmp_path / "whole", tmp_path / "parts")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of N env steps whose evaluations do not fall on the half."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(folder, "env=cartpole", *SCHEDULE)
    return folder


SCHEDULE = ["evaluation.interval=150", "checkpoint.interval=50"]


@pytest.fixture(scope="module")
def half(tmp_path_factory) -> Path:
    """Its first half; copy it to change it."""
    folder = tmp_path_factory.mktemp("runs") / "half"
    run(folder, "env=cartpole", *SCHEDULE, f"total_env_steps={N // 2}")
    return folder


@pytest.fixture
def parts(half, tmp_path) -> Path:
    shutil.copytree(half, tmp_path / "parts")
    return tmp_path / "parts"


def test_what_the_end_of_the_shorter_run_adds_is_not_in_the_longer_one(whole, half):
    assert [row["env_step"] for row in metrics(half)][-2:] == ["200", "200"]  # a point and an evaluation
    assert metrics(half)[-1]["eval/return_mean"]
    assert "200" not in [row["env_step"] for row in metrics(whole)]
    assert result(half)["finished"]


def test_three_parts_equal_one(whole, tmp_path):
    folder, schedule = tmp_path / "parts", ["env=cartpole", *SCHEDULE]
    run(folder, *schedule, "total_env_steps=100")
    run(folder, *schedule, "total_env_steps=250", f"resume={last(folder)}")
    run(folder, *schedule, f"resume={last(folder)}")
    assert_equal_runs(whole, folder)


def test_a_run_resumed_into_another_folder_stands_alone(whole, parts, tmp_path):
    before = outcome(parts)
    run(tmp_path / "other", "env=cartpole", *SCHEDULE, f"resume={last(parts)}")
    assert difference(before, outcome(parts)) is None, "the folder it came from has changed"
    shutil.rmtree(parts)
    assert_equal_runs(whole, tmp_path / "other")


def test_a_folder_that_a_run_was_resumed_into_can_be_resumed_before_its_first_own_checkpoint(
    whole, parts, tmp_path, monkeypatch
):
    other = tmp_path / "other"
    monkeypatch.setattr("lit_dqn.data.ReplayDataset._next_round", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(other, "env=cartpole", *SCHEDULE, f"resume={last(parts)}")
    monkeypatch.undo()
    run(other, "env=cartpole", *SCHEDULE, f"resume={last(other)}")
    assert_equal_runs(whole, other)


def test_the_command_lines_resume_takes_the_checkpoints_configuration(whole, parts):
    train(compose([f"resume={last(parts)}", f"total_env_steps={N}"]))
    assert_equal_runs(whole, parts)


def test_an_older_checkpoint_can_be_resumed_in_its_folder_and_what_came_after_it_goes(tmp_path):
    schedule = ["env=cartpole", "experience.num_envs=1", "checkpoint.interval=100", "checkpoint.keep=9"]
    run(tmp_path / "whole", *schedule)
    names = sorted(p.name for p in (tmp_path / "whole" / "checkpoints").glob("step-*"))
    assert names == [f"step-{n:010d}.ckpt" for n in (100, 200, 300, 400)]
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    older = tmp_path / "again" / "checkpoints" / names[0]
    run(tmp_path / "again", *schedule, f"resume={older}", "total_env_steps=200")
    assert load(last(tmp_path / "again"))["learner"]["env_step"] == 200
    assert sorted(p.name for p in older.parent.glob("step-*")) == names[:2]
    run(tmp_path / "again", *schedule, f"resume={last(tmp_path / 'again')}")
    assert_equal_runs(tmp_path / "whole", tmp_path / "again")


def test_no_more_checkpoints_are_kept_than_asked_for(tmp_path):
    schedule = ["env=cartpole", "experience.num_envs=1", "checkpoint.interval=100", "checkpoint.keep=2"]
    run(tmp_path / "run", *schedule, "evaluation.episodes=0")
    names = sorted(p.name for p in last(tmp_path / "run").parent.glob("*.ckpt"))
    assert names == ["last.ckpt", "step-0000000300.ckpt", "step-0000000400.ckpt"]
    newest = last(tmp_path / "run").with_name(names[2])
    assert difference(load(last(tmp_path / "run")), load(newest)) is None


def test_a_resumed_run_with_nothing_left_changes_nothing(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "again")
    run(tmp_path / "again", "env=cartpole", *SCHEDULE, f"resume={last(tmp_path / 'again')}")
    assert_equal_runs(whole, tmp_path / "again")


def test_a_killed_extension_does_not_look_finished(parts, monkeypatch):
    monkeypatch.setattr("lit_dqn.data.ReplayDataset._next_round", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(parts, "env=cartpole", *SCHEDULE, f"resume={last(parts)}")
    assert not result(parts)["finished"]


def test_a_best_checkpoint_of_an_evaluation_that_is_undone_goes_with_it(half, tmp_path):
    folder = tmp_path / "run"
    schedule = ["env=cartpole", "evaluation.interval=1000", "checkpoint.interval=100"]
    run(folder, *schedule, "total_env_steps=200")
    assert (folder / "checkpoints" / "best.ckpt").exists()
    run(folder, *schedule, "total_env_steps=300", "evaluation.episodes=0", f"resume={last(folder)}")
    assert not (folder / "checkpoints" / "best.ckpt").exists()
    assert result(folder)["best_eval_return_mean"] is None


def test_a_checkpoint_without_its_curves_can_be_resumed(parts, tmp_path):
    shutil.copytree(last(parts).parent, last(tmp_path / "alone").parent)
    run(tmp_path / "alone", "env=cartpole", *SCHEDULE, f"resume={last(tmp_path / 'alone')}")
    assert b"\0" not in (tmp_path / "alone" / "metrics.csv").read_bytes()
    assert int(metrics(tmp_path / "alone")[0]["env_step"]) > N // 2


def test_a_changed_learning_rate_takes_effect_on_resume(parts):
    run(parts, "env=cartpole", *SCHEDULE, "optimizer.lr=0.5", f"resume={last(parts)}")
    assert load(last(parts))["optimizer_states"][0]["param_groups"][0]["lr"] == 0.5


def test_weights_alone_cannot_be_resumed(parts, tmp_path):
    best = parts / "checkpoints" / "best.ckpt"
    with pytest.raises(UserError, match="weights only"):
        run(tmp_path / "other", "env=cartpole", f"resume={best}")
    assert not (tmp_path / "other").exists()


def test_weights_alone_can_start_a_new_run(parts, tmp_path, monkeypatch):
    best = parts / "checkpoints" / "best.ckpt"
    monkeypatch.setattr("lit_dqn.learner.Learner.update", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "new", "env=cartpole", f"init_from={best}")
    monkeypatch.undo()
    run(tmp_path / "slow", "env=cartpole", f"init_from={best}", "optimizer.lr=1e-30")
    new, old = load(last(tmp_path / "slow"))["state_dict"], load(best)["state_dict"]
    assert difference({k: new[k] for k in old}, old) is None


def test_a_new_run_does_not_enter_a_folder_that_holds_one(half, tmp_path):
    with pytest.raises(UserError, match="holds a run already"):
        run(half, "env=cartpole")
    (tmp_path / "metrics.csv").write_text("mine")
    with pytest.raises(UserError, match=r"holds metrics\.csv"):
        run(tmp_path, "env=cartpole")
    with pytest.raises(UserError, match=r"holds metrics\.csv"):
        run(tmp_path, "env=cartpole", f"resume={last(half)}")
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_diverged_network_is_not_written_over_a_healthy_checkpoint(parts, monkeypatch):
    before = load(last(parts))
    with pytest.raises(RunError, match="training has diverged"):
        run(parts, "env=cartpole", *SCHEDULE, "optimizer.lr=1e30", f"resume={last(parts)}")
    assert difference(before, load(last(parts))) is None


def test_a_checkpoint_without_replay_cannot_be_resumed(tmp_path):
    run(tmp_path / "run", "env=cartpole", "checkpoint.resumable=false", "evaluation.episodes=0")
    with pytest.raises(UserError, match="cannot be resumed"):
        run(tmp_path / "run", "env=cartpole", f"resume={last(tmp_path / 'run')}")


def test_the_tiny_runs_here_are_what_compose_makes():
    plain = compose([*TINY, "env=cartpole", "buffer.n_step=3"])
    ours = config("env=cartpole", "buffer.n_step=3")
    assert ours.network == plain.network
    assert ours.buffer.n_step == plain.buffer.n_step == 3


def test_a_checkpoint_from_before_an_option_of_the_env_resumes_with_its_command(tmp_path):
    run(tmp_path / "run", "env=cartpole")
    content = load(last(tmp_path / "run"))
    del content[HEADER]["config"]["env"]["image_layout"]
    torch.save(content, last(tmp_path / "run"))
    config = compose([f"resume={last(tmp_path / 'run')}", "env=cartpole"])
    assert config.env.image_layout == "auto"
