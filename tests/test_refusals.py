"""What cannot work is refused in a line or two that say what to type, and nothing is written."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cli import CommandLine
from conftest import TINY, command

NO_GPU = "no CUDA device was found; type trainer.gpus=0"
GYM = "env=gym env.id="
REFUSED = {
    # words: what the answer holds
    "gama=0.9": ["unknown option gama", "gamma"],
    "+gama=0.9": ["unknown option gama", "gamma"],
    "++gama=0.9": ["unknown option gama", "gamma"],
    "trainer.gpuss=1": ["unknown option trainer.gpuss", "trainer.gpus?"],
    "+trainer.gpuss=1": ["unknown option trainer.gpuss", "trainer.gpus?"],
    "lr=0.1": ["unknown option lr", "optimizer.lr?"],
    "hydra.run.dirr=x": ["unknown option hydra.run.dirr", "hydra.run.dir?"],
    "~gamma": ["~gamma", "cannot be removed"],
    "~trainer": ["~trainer", "cannot be removed"],
    "~optimizer.lr": ["~optimizer.lr", "cannot be removed"],
    "optimizer.lr=abc": ["optimizer.lr must be a number, got abc"],
    "optimizer.lr=true": ["optimizer.lr must be a number, got true"],
    "optimizer.lr=-1": ["optimizer.lr must be > 0", "got -1"],
    "optimizer.lr=inf": ["optimizer.lr must be a finite number, got inf"],
    "optimizer.betas=[0.9]": ["optimizer.betas must be a list of at least 2, got [0.9]"],
    "gamma=1.5": ["gamma must be <= 1", "got 1.5"],
    "gamma=null": ["gamma must be a number, got null"],
    "gamma=${oc.env:NO_SUCH_VARIABLE}": ["gamma", "NO_SUCH_VARIABLE"],
    "env.id=${nothing}": ["env.id", "nothing"],
    "seed=-1": ["seed must be >= 0, got -1"],
    "seed=1.5": ["seed must be a whole number, got 1.5"],
    "total_env_steps=0": ["total_env_steps must be >= 1, got 0"],
    "buffer.batch_size=0": ["buffer.batch_size must be >= 1, got 0"],
    "buffer.batch_size=true": ["buffer.batch_size must be a whole number, got true"],
    "buffer.batch_size=": ["buffer.batch_size must be a whole number, got ''"],
    "env=acrobot buffer.capacity=10": ["buffer.capacity must be at least", "= 96, got 10"],
    "experience.num_envs=0": ["experience.num_envs must be >= 1, got 0"],
    "experience.learning_starts=50000": ["experience.learning_starts=50000", "total_env_steps=50000"],
    "exploration.end=2": ["exploration.end must be <= 1", "got 2"],
    "network.hidden=[]": ["network.hidden must be a list of at least 1, got []"],
    "network.hidden=[0]": ["network.hidden.0 must be >= 1, got 0"],
    "agent.loss=hubr": ["agent.loss must be 'mse' or 'huber', got hubr", "huber?"],
    "agent.double=1": ["agent.double must be true or false, got 1"],
    "mode=trian": ["mode must be 'train', 'eval' or 'play', got trian", "train?"],
    "compile=maybe": ["compile must be 'auto' or true or false, got maybe"],
    "evaluation.episodes=-1": ["evaluation.episodes must be >= 0, got -1"],
    "env=cartpol": ["env=cartpol is unknown", "cartpole?", "Known:"],
    "env=null": ["env=null is unknown", "Known:"],
    "env={id:CartPole-v1}": ["env=", "is unknown", "Known:"],
    "agent=dqnn": ["agent=dqnn is unknown", "dqn?"],
    "network=mlpp": ["network=mlpp is unknown", "mlp?"],
    "optimizer=adm": ["optimizer=adm is unknown", "adam?"],
    "experiment=textbok": ["experiment=textbok is unknown", "textbook?"],
    "tuned=cartpole": ["tuned=cartpole is unknown", "cartpole_dqn"],
    "tuned=null": ["tuned=null is unknown"],
    "env=gym": ["env.id is missing", "env.id="],
    f"{GYM}CartPol-v1": ["env.id=CartPol-v1", "near names: CartPole-v1"],
    f"{GYM}no_such_module:Env-v0": ["no module 'no_such_module'", "PYTHONPATH"],
    f"{GYM}Pendulum-v1": ["Pendulum-v1", "Box", "Discrete(n) is supported"],
    f"{GYM}trap_envs:Trap/TupleAction-v0": ["Trap/TupleAction-v0", "Tuple", "Discrete(n) is supported"],
    f"{GYM}trap_envs:Trap/RaiseInInit-v0": ["Trap/RaiseInInit-v0", "planned failure in init"],
    "env.wrappers=[gymnasium.wrappers.NoSuch]": ["env.wrappers", "NoSuch"],
    "+env.kwargs.no_such=3": ["CartPole-v1", "no_such"],
    "env.kwargs.no_such=3": ["env.kwargs.no_such", "+env.kwargs.no_such=3"],
    "env.max_episode_steps=0": ["env.max_episode_steps must be >= 1, got 0"],
    "agent._target_=os.system": ["agent._target_=os.system", "no class"],
    "agent._target_=no_such.Agent": ["agent._target_=no_such.Agent cannot be imported"],
    "resume=none.ckpt": ["none.ckpt", "no such checkpoint"],
    "init_from=none.ckpt": ["none.ckpt", "no such checkpoint"],
    "mode=eval ckpt=none.ckpt": ["none.ckpt", "no such checkpoint"],
    "mode=eval": ["mode=eval needs a checkpoint: type ckpt=PATH"],
    "mode=play": ["mode=play needs a checkpoint: type ckpt=PATH"],
    "resume=auto": ["resume=auto", "hydra.run.dir="],
    "-m resume=auto seed=0,1": ["resume=auto", "-m"],
    # Names of later versions.
    **{
        word: [f"{word} is not available in this version"]
        for word in (
            *("mode=doctor", "env=atari", "env=minatar", "env=pong", "env=breakout", "env.game=pong"),
            *("experience.overlap=true", "trainer.profile=true"),
        )
    },
    "compile=true": ["compile=true is not available in this version"],
    # The replay.
    "env=acrobot buffer.alpha=0.5": ["unknown option buffer.alpha"],
    "buffer=prioritized buffer.alpha=2": ["buffer.alpha must be <= 1.0, got 2"],
    "buffer=priority": ["buffer=priority is unknown", "prioritized"],
    "buffer.frame_stack=0": ["buffer.frame_stack", "0"],
    "buffer.stack_padding=none": ["buffer.stack_padding", "zero", "first"],
    "buffer.reward_clip=0": ["buffer.reward_clip", "0"],
    "buffer.device=cuda": ["buffer.device=cuda", "no GPU is available", "buffer.device=cpu"],
    "buffer.device=tpu": ["buffer.device", "cpu", "cuda", "auto"],
    "buffer.capacity=100000000000": [
        "buffer.capacity=100000000000 takes",
        "is free",
        "buffer.allow_overcommit=true",
    ],
    # GPUs, on a machine without one.
    "trainer.gpus=1": ["trainer.gpus=1", NO_GPU],
    "trainer.gpus=2": ["trainer.gpus=2", NO_GPU],
    "trainer.gpus=-1": ["trainer.gpus=-1", NO_GPU],
    "trainer.gpus=[0]": ["trainer.gpus=[0]", NO_GPU],
    "trainer.gpus=abc": ["trainer.gpus=abc", "-1 (all)", "[0]", "auto"],
    "trainer.gpus=-5": ["trainer.gpus=-5", "-1 (all)"],
    "trainer.gpus=true": ["trainer.gpus=true", "-1 (all)"],
    "trainer.devices=2": ["unknown option trainer.devices"],
    "trainer.precision=16-mixed": ["trainer.precision=16-mixed", "bf16-mixed"],
    "trainer.precision=64": ["trainer.precision"],
    # Words that are no overrides, and sweeps.
    "seed=0,1": ["seed=0,1", "add -m"],
    "a=b=c": ["key=value"],
    "cartpole": ["cartpole", "key=value"],
    "=3": ["=3", "key=value"],
    "-x": ["unknown flag -x"],
    "--config-dir nowhere": ["nowhere", "no such folder"],
    "-m seed=0,1 gama=1": ["unknown option gama"],
    "-m seed=0,a": ["seed must be a whole number, got a"],
    "-m env=cartpole,atari": ["env=atari is not available"],
    "-m agent=dqn,c51 agent.loss=mse": ["agent.loss"],
    "agent=c51 agent.munchausen=true": ["unknown option agent.munchausen"],
    "agent=iqn agent.double=true agent.munchausen=true": ["agent.double=true does not go with"],
    "-m seed=0,1 optimizer.lr=0.1,-1": ["optimizer.lr must be > 0", "got -1"],
}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    return CommandLine(tmp_path, capsys)


def refused(cli: CommandLine, *words: str) -> str:
    before = cli.files()
    answer = cli(*words)
    assert answer.code == 2, (answer.out, answer.err)
    lines = answer.err.splitlines()
    assert len(lines) <= 2
    assert lines[-1].startswith("error: ")
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert cli.files() == before
    return answer.err


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_work_is_refused_in_a_line_and_nothing_is_written(cli, words):
    answer = refused(cli, *words.split(" "))
    for part in REFUSED[words]:
        assert part in answer


def test_a_refusal_leaves_the_typed_run_folder_alone(cli):
    refused(cli, "hydra.run.dir=mine", "gamma=2")
    mine = cli.folder / "mine"
    (mine / "tensorboard").mkdir(parents=True)
    refused(cli, "hydra.run.dir=mine", "resume=auto", "gamma=2")
    assert (mine / "tensorboard").is_dir()


@pytest.mark.parametrize(
    ("gpus", "there", "said"),
    [
        ("2", 1, "this machine has 1 CUDA device"),
        ("[1]", 1, "this machine has 1 CUDA device"),
        ("-1", 2, "several GPUs"),
        ("2", 2, "several GPUs"),
    ],
)
def test_gpus_that_are_not_there_or_too_many_are_refused(cli, monkeypatch, gpus, there, said):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    answer = refused(cli, f"trainer.gpus={gpus}")
    assert f"trainer.gpus={gpus}" in answer
    assert said in answer


@pytest.mark.parametrize("gpus", ["0", "auto", "null", "[]"])
def test_forms_that_need_no_gpu_pass_on_a_machine_without_one(cli, gpus):
    assert cli("--cfg", "job", f"trainer.gpus={gpus}").code == 0


@pytest.mark.parametrize("gpus", ["1", "-1", "[0]", "auto"])
def test_one_gpu_may_be_asked_for_where_there_is_one(cli, monkeypatch, gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert cli("--cfg", "job", f"trainer.gpus={gpus}").code == 0


def test_a_missing_package_is_named_with_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    assert 'pip install "lit-dqn[box2d]"' in refused(cli, "env=lunarlander")


class Malicious:
    def __reduce__(self):
        return (os.mkdir, ("ran-code",))


def no_checkpoints(folder: Path) -> dict[str, Path]:
    files = {name: folder / f"{name}.ckpt" for name in ("empty", "text", "foreign", "pickle", "zip")}
    files["empty"].write_bytes(b"")
    files["text"].write_text("root:x:0:0:root:/root:/bin/bash\n")
    torch.save({"state_dict": {}}, files["foreign"])
    files["pickle"].write_bytes(pickle.dumps(Malicious()))
    torch.save({"lit_dqn": Malicious()}, files["zip"])
    return files


@pytest.mark.parametrize("key", ["resume", "init_from"])
@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "foreign",
        "zip",
        "text",
        "pickle",
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused_and_runs_nothing(cli, key, kind):
    path = no_checkpoints(cli.folder)[kind]
    answer = refused(cli, *f"{key}={path.name}".split(" "))
    assert path.name in answer
    assert "no lit_dqn checkpoint" in answer
    assert not (cli.folder / "ran-code").exists()


def test_the_traceback_is_shown_on_request_only(cli, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    answer = cli("gama=1")
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("error: unknown option gama")


CHILD = """
import sys
from lit_dqn.__main__ import main
sys.argv[1:] = {words!r}
try:
    main()
finally:
    print("LOADED", *[m for m in ("torch", "lightning_fabric", "pytorch_lightning") if m in sys.modules])
"""


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["env=cartpol"], ""),
        (["gama=1"], ""),
        (["env=gym", "env.id=CartPol-v1"], ""),
        (["env=atari"], ""),
        (["-m", "seed=0,1", "agent.doubl=true"], ""),
        (["--help"], ""),
        (["buffer.capacity=10"], "torch"),
        (["resume=none.ckpt"], "torch"),
    ],
)
def test_names_and_help_are_answered_without_torch_and_refusals_without_lightning(tmp_path, words, loaded):
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(words=words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == (0 if words == ["--help"] else 2), child.stderr
    assert child.stdout.splitlines()[-1].split() == ["LOADED", *loaded.split()]
    assert list(tmp_path.iterdir()) == []


def test_the_process_ends_with_the_refusals_exit_code(tmp_path):
    answer = command(*TINY, "env=cartpol", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: env=cartpol is unknown")
