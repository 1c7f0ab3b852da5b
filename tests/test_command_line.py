"""The command line from a user's chair: help, resume, evaluate, play, and commands that can be pasted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from cli import CommandLine
from conftest import TINY, command
from lit_dqn import compose, load, train
from lit_dqn.checkpoint_file import FORMAT
from lit_dqn.config.compose import plain
from lit_dqn.errors import UserError
from lit_dqn.preflight import check_parts


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run of CartPole, in a folder whose name a shell and Hydra both stumble over."""
    folder = tmp_path_factory.mktemp("trained") / "a run=1, [b]"
    (folder / ".hydra").mkdir(parents=True)
    train(compose([*TINY, "env=cartpole", "optimizer=rmsprop"]), folder)
    return folder


@pytest.fixture
def run_folder(trained: Path, tmp_path: Path) -> Path:
    """The trained run's files, to do with as a test likes."""
    return Path(shutil.copytree(trained, tmp_path / "a run=1, [b]"))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, capsys)


def ckpt(folder: Path, name: str = "last") -> str:
    return f'"{folder}/checkpoints/{name}.ckpt"'


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def effective(folder: Path):
    return OmegaConf.load(folder / ".hydra" / "config.yaml")


def only_run(folder: Path) -> Path:
    (run,) = (folder / "outputs").glob("*/*")
    return run


def test_help_lists_what_there_is_and_five_examples(cli):
    answer = cli("--help")
    assert answer.code == 0
    for name in ("env=cartpole", "env=gym", "agent=dqn", "experiment=textbook"):
        assert name in answer.out
    assert answer.out.count("python -m lit_dqn ") >= 6  # five examples, and how to see every option
    assert cli.files() == []


@pytest.mark.parametrize(
    "flags", [["--cfg", "job"], ["--cfg", "hydra"], ["--info", "defaults"], ["--hydra-help"]]
)
def test_hydras_own_flags_work_and_write_nothing(cli, flags):
    if flags == ["--hydra-help"]:
        with pytest.raises(SystemExit) as end:
            cli(*flags)
        assert end.value.code in (0, None)
    else:
        answer = cli(*flags)
        assert answer.code == 0
        assert answer.out
    assert cli.files() == []


def test_cfg_job_shows_what_the_run_would_use(cli):
    shown = OmegaConf.create(cli("--cfg", "job", "env=cartpole", "optimizer=rmsprop", "seed=7").out)
    assert shown == compose(["env=cartpole", "optimizer=rmsprop", "seed=7"])


def test_a_run_has_its_own_folder_and_says_what_to_type_next(cli):
    answer = cli(*TINY, "env=cartpole")
    assert answer.code == 0
    run = only_run(cli.folder)
    assert set(run.name) <= set("0123456789abcdef-")
    assert result(run)["finished"]
    assert effective(run).total_env_steps == 400
    assert "total_env_steps=400" in (run / ".hydra" / "overrides.yaml").read_text()
    assert "tensorboard --logdir" in answer.out


# Resume.


def test_checkpoints_that_end_every_long_episode_are_noted_with_what_to_type(cli):
    words = ["env=cartpole", *TINY, "evaluation.episodes=0", "hydra.run.dir=a"]
    answer = cli(*words)
    assert answer.code == 0
    (note,) = [line for line in answer.err.splitlines() if line.startswith("note: ")]
    assert "up to 500 steps" in note
    assert "after 100 in each of 2 envs" in note
    cure = note.split("; type ")[1].rstrip(".")
    for change in (cure, "total_env_steps=200"):  # far enough apart; none before the end
        err = cli(*words[:-1], change, f"hydra.run.dir={change.split('=')[0]}").err
        assert not any(line.startswith("note: ") for line in err.splitlines())


@pytest.mark.parametrize("env", ["cartpole", "acrobot", "mountaincar", "lunarlander"])
def test_the_recipes_need_no_advice(env):
    assert check_parts(plain(compose([f"env={env}"]))) == []


def test_resume_takes_the_checkpoints_configuration_but_for_what_is_typed(cli, run_folder):
    words = ["total_env_steps=600", "optimizer.alpha=0.5", "evaluation.episodes=3", "trainer.log_interval=50"]
    answer = cli(f"resume={ckpt(run_folder)}", *words)
    assert answer.code == 0, answer.err
    config = effective(run_folder)
    assert config.experience.learning_starts == 40  # the checkpoint's, not the default
    assert (config.optimizer.alpha, config.optimizer.lr) == (0.5, 2.5e-4)
    assert result(run_folder)["env_steps"] >= 600
    assert result(run_folder)["eval_episodes"] == 3
    assert not (cli.folder / "outputs").exists()


def test_resume_into_another_folder_leaves_the_old_one_alone(cli, run_folder):
    before = {p: p.read_bytes() for p in run_folder.rglob("*") if p.is_file()}
    answer = cli(f"resume={ckpt(run_folder)}", "total_env_steps=500", "hydra.run.dir=other")
    assert answer.code == 0, answer.err
    assert {p: p.read_bytes() for p in run_folder.rglob("*") if p.is_file()} == before
    other = cli.folder / "other"
    assert result(other)["env_steps"] >= 500
    old, new = ((f / "metrics.csv").read_text().splitlines() for f in (run_folder, other))
    assert new[:2] == old[:2]


@pytest.mark.parametrize(
    "change",
    [
        "env=acrobot",
        "env.id=CartPole-v0",
        "agent.tau=0.5",
        "network.hidden=[8]",
        "gamma=0.5",
        "buffer.n_step=5",
        "experience.num_envs=4",
        "seed=3",
    ],
)
def test_a_change_that_a_resumed_run_cannot_take_is_refused_by_key(cli, run_folder, change):
    before = cli.files()
    answer = cli(f"resume={ckpt(run_folder)}", "total_env_steps=500", change)
    assert answer.code == 2
    assert f"{change.partition('=')[0]}" in answer.err
    assert "cannot change on resume" in answer.err
    assert "init_from=" in answer.err
    assert cli.files() == before


def test_an_unknown_key_is_refused_on_resume_with_the_checkpoints_own_keys_in_mind(cli, run_folder):
    answer = cli(f"resume={ckpt(run_folder)}", "optimizer.alfa=0.5")
    assert (answer.code, "optimizer.alpha?" in answer.err) == (2, True)
    answer = cli(f"resume={ckpt(run_folder)}", "optimizer.alpha=5")
    assert (answer.code, "optimizer.alpha must be < 1" in answer.err) == (2, True)


def test_the_best_checkpoint_is_refused_for_resume_with_the_way_out(cli, run_folder):
    answer = cli(f"resume={ckpt(run_folder, 'best')}", "total_env_steps=500")
    assert answer.code == 2
    assert "last.ckpt" in answer.err
    assert "init_from=" in answer.err


def test_a_finished_run_says_so(cli, run_folder):
    before = {p: p.stat().st_mtime_ns for p in run_folder.rglob("*")}
    for words in ([f"resume={ckpt(run_folder)}"], ["resume=auto", f'hydra.run.dir="{run_folder}"']):
        answer = cli(*words)
        assert (answer.code, answer.err) == (0, "")
        assert "finished" in answer.out
        assert "total_env_steps" in answer.out
    assert {p: p.stat().st_mtime_ns for p in run_folder.rglob("*")} == before


def test_resume_auto_starts_afresh_then_continues(cli):
    # The folder is the one Hydra would name; what a run without a checkpoint left there goes.
    here = ["hydra.run.dir=mine/seed-${seed}", "resume=auto", *TINY]
    mine = cli.folder / "mine" / "seed-0"
    (mine / "tensorboard").mkdir(parents=True)
    (mine / "metrics.csv").write_text("env_step\n1\n")
    (mine / "tensorboard" / "events.out.tfevents.1.old").touch()
    assert cli(*here).code == 0
    assert not (mine / "tensorboard" / "events.out.tfevents.1.old").exists()
    assert 400 <= result(mine)["env_steps"] < 500
    assert cli(*here, "total_env_steps=500").code == 0
    assert result(mine)["env_steps"] >= 500
    assert (mine / "metrics.csv").read_text().count("env_step,") == 1


def test_resume_auto_deletes_nothing_that_no_run_has_written(cli):
    (cli.folder / "mine" / "checkpoints").mkdir(parents=True)
    (cli.folder / "mine" / "metrics.csv").write_text("env_step\n")
    (cli.folder / "mine" / "checkpoints" / "thesis.pt").touch()
    answer = cli("hydra.run.dir=mine", "resume=auto", *TINY)
    assert answer.code == 2
    assert "thesis.pt was left by no run of lit_dqn" in answer.err
    assert (cli.folder / "mine" / "metrics.csv").exists()


def test_a_folder_that_another_process_writes_to_is_refused_and_left_as_it_is(cli, run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "busy")
    (tmp_path / "busy" / ".hydra" / "config.yaml").write_text("of the run that is going on")
    before = (tmp_path / "busy" / ".hydra" / "config.yaml").read_text()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, filelock\n"
            "with filelock.FileLock(sys.argv[1]):\n print('held', flush=True)\n sys.stdin.read()",
            str(tmp_path / "busy" / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"held\n"
    answer = cli(f"resume={ckpt(tmp_path / 'busy', 'last')}", "total_env_steps=600")
    holder.communicate()
    assert answer.code == 2
    assert "another process is writing to this folder" in answer.err
    assert (tmp_path / "busy" / ".hydra" / "config.yaml").read_text() == before
    assert cli(f"resume={ckpt(tmp_path / 'busy', 'last')}", "total_env_steps=440").code == 0


def test_what_a_checkpoint_cannot_be_resumed_or_evaluated_with_is_refused_by_key(cli, run_folder):
    resume, evaluate = f"resume={ckpt(run_folder, 'last')}", f"ckpt={ckpt(run_folder, 'best')}"
    for words, expected in (
        ([resume, "total_env_steps=600", "experience.steps_per_round=7"], "experience.steps_per_round"),
        ([resume, "total_env_steps=600", "experience.learning_starts=7"], "experience.learning_starts"),
        ([resume, "total_env_steps=600", "buffer=prioritized"], "buffer._target_"),
        ([resume, "total_env_steps=600", "buffer.frame_stack=2"], "buffer.frame_stack"),
        ([resume, "total_env_steps=600", "experiment=textbook"], "experiment= does not go with resume="),
        (["mode=eval", evaluate, "buffer.frame_stack=2"], "buffer.frame_stack belongs to the checkpoint"),
    ):
        answer = cli(*words)
        assert answer.code == 2
        assert expected in answer.err


def test_a_stacked_prioritised_checkpoint_evaluates_alike_whatever_buffer_is_typed(cli):
    assert cli(*TINY, "buffer=prioritized", "buffer.frame_stack=3", "hydra.run.dir=stacked").code == 0
    path = f"ckpt={ckpt(cli.folder / 'stacked', 'last')}"
    for name in ("one", "two"):
        words = ["mode=eval", path, f"hydra.run.dir={name}", "evaluation.episodes=5"]
        assert cli(*words, *(["buffer.batch_size=5"] if name == "two" else [])).code == 0
    scores = [result(cli.folder / name)["eval_return_mean"] for name in ("one", "two")]
    assert scores[0] == scores[1] > 0


def test_a_damaged_or_missing_part_of_the_replay_is_refused_before_a_folder_is_made(
    cli, run_folder, tmp_path
):
    shutil.copytree(run_folder, tmp_path / "hurt")
    part = next((tmp_path / "hurt" / "checkpoints" / "replay").iterdir())
    words = [f"resume={ckpt(tmp_path / 'hurt', 'last')}", "total_env_steps=600", "hydra.run.dir=elsewhere"]
    part.write_bytes(part.read_bytes()[:-100])
    for state in ("damaged", "missing"):
        answer = cli(*words)
        assert answer.code == 2
        assert f"{part.name} is {state}" in answer.err
        assert "type init_from=" in answer.err
        assert not (cli.folder / "elsewhere").exists()
        part.unlink(missing_ok=True)


def test_a_run_without_its_replay_offers_no_resume(cli):
    assert "resume=" not in cli(*TINY, "checkpoint.resumable=false", "hydra.run.dir=weights").out
    answer = cli(f"resume={ckpt(cli.folder / 'weights', 'last')}")
    assert answer.code == 2
    assert "type init_from=" in answer.err
    assert "resume=" not in answer.err.replace("resume=" + str(cli.folder), "")


def test_a_run_that_stopped_at_its_return_says_how_to_train_on(cli):
    out = cli(*TINY, "evaluation.stop_at_return=1", "hydra.run.dir=stopped").out
    assert "evaluation.stop_at_return=null" in out
    again = cli(f"resume={ckpt(cli.folder / 'stopped', 'last')}", "total_env_steps=800")
    assert again.code == 0
    assert "type evaluation.stop_at_return=null" in again.out
    assert cli(f"resume={ckpt(cli.folder / 'stopped', 'last')}", "evaluation.stop_at_return=null").code == 0
    assert result(cli.folder / "stopped")["env_steps"] >= 400


def test_a_finished_run_in_a_sweeps_folder_keeps_its_words(cli):
    sweep = ["-m", *TINY, "hydra.sweep.dir=sweep", "hydra.sweep.subdir=${hydra.job.num}"]
    assert cli(*sweep, "seed=5").code == 0
    (cli.folder / "sweep" / "multirun.yaml").unlink()  # which would refuse the whole sweep
    assert cli(*sweep, "seed=7").code == 1
    assert "seed: 5" in (cli.folder / "sweep" / "0" / ".hydra" / "config.yaml").read_text()


def test_a_folder_of_yaml_can_be_named_in_two_words(cli, tmp_path):
    answer = cli("--cfg", "hydra", "--config-dir", str(tmp_path))
    assert answer.code == 0, answer.err


def test_init_from_takes_the_weights_alone(cli, run_folder):
    answer = cli(*TINY, "tuned=none", f"init_from={ckpt(run_folder, 'best')}", "optimizer.lr=1e-12", "seed=9")
    assert answer.code == 0, answer.err
    run = only_run(cli.folder)
    before, after = (
        torch.load(f / "checkpoints" / n, weights_only=True)["state_dict"]["q_net.head.values.0.weight"]
        for f, n in ((run_folder, "best.ckpt"), (run, "last.ckpt"))
    )
    torch.testing.assert_close(before, after, atol=1e-6, rtol=0)
    assert result(run)["env_steps"] == 400


def test_weights_that_do_not_fit_are_refused_before_a_folder_is_made(cli, run_folder):
    for words in (["network.hidden=[5]"], ["env=acrobot"]):
        answer = cli(*TINY, *words, f"init_from={ckpt(run_folder)}")
        assert answer.code == 2
        assert "do not fit" in answer.err
    assert not (cli.folder / "outputs").exists()


# Code that only a file names.


def with_config(folder: Path, **changes: object) -> str:
    """A checkpoint whose stored configuration was tampered with."""
    path = folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    config = OmegaConf.create(checkpoint["lit_dqn"]["config"])
    for key, value in changes.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    checkpoint["lit_dqn"]["config"] = OmegaConf.to_container(config)
    torch.save(checkpoint, path)
    return ckpt(folder)


@pytest.mark.parametrize("key", ["resume", "mode=eval ckpt"])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("env__id", "planted:Trap/Chain-v0"),
        ("env__wrappers", ["planted.Wrapper"]),
        ("env__target", None),
        ("network___target_", "planted.Net"),
        ("agent___target_", "planted.Agent"),
        ("optimizer___target_", "lit_dqn_evil.optimizers.Adam"),
    ],
)
def test_code_that_only_the_file_names_is_not_imported(cli, run_folder, monkeypatch, key, place, value):
    (cli.folder / "planted.py").write_text("raise SystemExit('the planted module was imported')")
    (cli.folder / "lit_dqn_evil.py").write_text("raise SystemExit('the planted module was imported')")
    monkeypatch.syspath_prepend(str(cli.folder))
    place, value = ("env___target_", "planted.Env") if place == "env__target" else (place, value)
    path = with_config(run_folder, **{place: value})
    answer = cli(*f"{key}={path}".split(" ", 1 if key.startswith("mode") else 0), "total_env_steps=500")
    assert answer.code == 2
    assert "trust=true" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("key", ["resume", "mode=eval ckpt"])
@pytest.mark.parametrize(
    "changes",
    [
        {"env__id": "${env.kwargs.x}", "env__kwargs": {"x": "planted:Trap/Chain-v0"}},
        {"env__id": "${oc.decode:'planted:Trap/Chain-v0'}"},
        {"env__wrappers": ["${env.kwargs.x}"], "env__kwargs": {"x": "planted.Wrapper"}},
        {"network___target_": "${oc.decode:planted.Net}"},
        {"env__kwargs": {"x": "${oc.env:HOME}"}},
    ],
)
def test_an_interpolation_in_a_file_is_refused_and_not_resolved(cli, run_folder, monkeypatch, key, changes):
    (cli.folder / "planted.py").write_text("raise SystemExit('the planted module was imported')")
    monkeypatch.syspath_prepend(str(cli.folder))
    path = with_config(run_folder, **changes)
    answer = cli(*f"{key}={path}".split(" ", 1 if key.startswith("mode") else 0), "total_env_steps=500")
    assert answer.code == 2
    assert "interpolation" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("key", ["resume", "ckpt", "init_from"])
@pytest.mark.parametrize(
    "content",
    [
        {"lit_dqn": {"format": FORMAT}},
        {"lit_dqn": {"format": FORMAT, "config": {}}},
        {"lit_dqn": {"format": FORMAT, "config": [], "spaces": None}, "state_dict": {}},
    ],
)
def test_a_file_that_only_looks_like_a_checkpoint_is_refused(cli, key, content):
    torch.save(content, "odd.ckpt")
    before = sorted(cli.folder.iterdir())
    answer = cli(*(["mode=eval"] if key == "ckpt" else []), f"{key}=odd.ckpt")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert "odd.ckpt is no lit_dqn checkpoint, or is damaged" in answer.err
    assert sorted(cli.folder.iterdir()) == before
    with pytest.raises(UserError, match="no lit_dqn checkpoint"):
        load("odd.ckpt")


@pytest.mark.parametrize("part", ["learner", "state_dict"])
def test_a_checkpoint_without_one_of_its_parts_is_refused_before_a_folder_is_made(cli, run_folder, part):
    path = run_folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint[part]
    torch.save(checkpoint, path)
    before = sorted(cli.folder.rglob("*"))
    answer = cli("mode=eval", f"ckpt={ckpt(run_folder)}")
    assert answer.code == 2
    assert f"it has no {part}" in answer.err
    assert sorted(cli.folder.rglob("*")) == before


def test_a_damaged_result_counts_as_unfinished(cli, run_folder):
    (run_folder / "result.json").write_text("{")
    answer = cli(f"resume={ckpt(run_folder)}", "total_env_steps=500")
    assert answer.code == 0, answer.err
    assert result(run_folder)["env_steps"] >= 500


@pytest.mark.parametrize("start", ["experiment=textbook", "init_from=first.ckpt", "tuned=none"])
def test_resume_auto_takes_what_a_run_started_from_from_its_checkpoint(cli, run_folder, start):
    shutil.copy(run_folder / "checkpoints" / "last.ckpt", "first.ckpt")
    words = [*TINY, "env=cartpole", start, "hydra.run.dir=mine", "resume=auto"]
    assert cli(*words).code == 0
    again = cli(*words)
    assert (again.code, "is finished" in again.out) == (0, True), again.err
    assert cli(*words, "total_env_steps=500").code == 0


@pytest.mark.parametrize("word", ["hydra/launcher=joblib", "hydra/sweeper=optuna"])
def test_another_launcher_or_sweeper_than_hydras_own_is_refused(cli, word):
    answer = cli("-m", *TINY, "seed=0,1", word)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {word}: ")
    assert not (cli.folder / "outputs").exists()


def test_an_env_module_of_the_file_is_imported_when_trusted_or_typed(cli, tmp_path):
    env = "env.id=trap_envs:Trap/Chain-v0"
    assert cli(*TINY, "env=gym", env, "hydra.run.dir=mine").code == 0
    path = "mine/checkpoints/last.ckpt"
    for more in (["trust=true"], [env]):
        assert cli("mode=eval", f"ckpt={path}", *more).code == 0
    assert cli("mode=eval", f"ckpt={path}").code == 2


# Evaluate and play.


def test_eval_needs_the_checkpoint_alone_and_repeats_the_trainings_score(cli, run_folder):
    before = (run_folder / "result.json").read_bytes()
    elsewhere = cli.folder / "moved.ckpt"
    shutil.copy(run_folder / "checkpoints" / "last.ckpt", elsewhere)
    answer = cli("mode=eval", "ckpt=moved.ckpt")
    assert answer.code == 0, answer.err
    evaluated, trained = result(only_run(cli.folder)), result(run_folder)
    same = (
        "env_id",
        "agent",
        "seed",
        "env_steps",
        "eval_return_mean",
        "eval_return_std",
        "random_return_mean",
    )
    assert {k: evaluated[k] for k in same} == {k: trained[k] for k in same}
    assert evaluated.keys() == trained.keys()
    assert evaluated["wall_seconds"] > 0
    for name in ("episodes", "best_eval_return_mean", "env_steps_per_second", "updates_per_second"):
        assert evaluated[name] is None
    assert (run_folder / "result.json").read_bytes() == before


def test_eval_of_the_best_checkpoint_gives_the_best_score_and_typed_values_apply(cli, run_folder):
    assert cli("mode=eval", f"ckpt={ckpt(run_folder, 'best')}", "hydra.run.dir=one").code == 0
    assert result(cli.folder / "one")["eval_return_mean"] == result(run_folder)["best_eval_return_mean"]
    best = torch.load(run_folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert result(cli.folder / "one")["updates"] == best["learner"]["updates"] > 0
    more = ["evaluation.episodes=7", "evaluation.random_baseline=false", "hydra.run.dir=two"]
    assert cli("mode=eval", f"ckpt={ckpt(run_folder, 'best')}", *more).code == 0
    assert result(cli.folder / "two")["eval_episodes"] == 7
    assert result(cli.folder / "two")["random_return_mean"] is None


def test_eval_does_not_ask_for_the_gpu_the_run_was_trained_on(cli, run_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    path = with_config(run_folder, trainer__gpus=1)
    assert cli("mode=eval", f"ckpt={path}").code == 0
    assert "trainer.gpus=0" in cli(f"resume={path}", "total_env_steps=500").err


def test_eval_on_an_env_of_other_spaces_is_refused(cli, run_folder):
    answer = cli("mode=eval", f"ckpt={ckpt(run_folder)}", "env=acrobot")
    assert answer.code == 2
    assert "Acrobot-v1" in answer.err
    assert "observation" in answer.err


def test_play_writes_a_video_where_there_is_no_screen(cli, run_folder, monkeypatch):
    pytest.importorskip("moviepy")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    answer = cli("mode=play", f"ckpt={ckpt(run_folder)}", "hydra.run.dir=played")
    assert answer.code == 0, answer.err
    (video,) = (cli.folder / "played" / "video").glob("*.mp4")
    assert video.stat().st_size > 1000
    assert "episode return" in answer.out


@pytest.mark.parametrize(("limit", "cut", "steps"), [(7, 400, 7), (400, 7, 7)])
def test_play_ends_at_the_envs_own_limit_and_at_ours(cli, run_folder, monkeypatch, limit, cut, steps):
    pytest.importorskip("moviepy")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    limits = [f"env.max_episode_steps={limit}", f"evaluation.max_episode_steps={cut}"]
    answer = cli("mode=play", f"ckpt={ckpt(run_folder)}", "hydra.run.dir=played", *limits)
    assert f"episode return {steps:.1f}" in answer.out


def test_play_is_refused_at_once_where_nothing_could_be_shown(cli, run_folder, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert cli(*TINY, "env=gym", "env.id=trap_envs:Trap/NoRender-v0", "hydra.run.dir=mine").code == 0
    answer = cli("mode=play", "ckpt=mine/checkpoints/last.ckpt", "trust=true")
    assert answer.code == 2
    assert "Trap/NoRender-v0 has no render mode" in answer.err
    monkeypatch.setitem(sys.modules, "moviepy", None)
    answer = cli("mode=play", f"ckpt={ckpt(run_folder)}")
    assert answer.code == 2
    assert 'pip install "lit-dqn[play]"' in answer.err
    assert not (cli.folder / "outputs").exists()


def test_the_printed_commands_work_when_they_are_pasted(cli):
    answer = cli(*TINY, "env=gym", "env.id=trap_envs:Trap/Chain-v0", 'hydra.run.dir="a dir, b=[1]"')
    assert answer.code == 0, answer.err
    lines = [line for line in answer.out.splitlines() if line.startswith("  python -m lit_dqn ")]
    assert len(lines) == 2
    for line in lines:
        assert "trust=true" in line
        again = cli(*shlex.split(line)[3:])
        assert again.code == 0, again.err
    assert result(cli.folder / "a dir, b=[1]")["env_steps"] >= 800


def test_one_real_process_trains_and_another_evaluates_from_another_folder(tmp_path):
    words = [*TINY, "env=cartpole", "hydra.run.dir=mine"]
    assert (done := command(*words, cwd=tmp_path)).returncode == 0, done.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = os.path.relpath(tmp_path / "mine" / "checkpoints" / "best.ckpt", elsewhere)
    done = command("mode=eval", f"ckpt={path}", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert "Lightning" not in done.stderr + done.stdout
    assert only_run(elsewhere).joinpath("result.json").is_file()
