"""What one job does: train, evaluate a checkpoint, or show it playing."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from omegaconf import DictConfig

from lit_dqn.checkpoint_file import HEADER, read_checkpoint
from lit_dqn.config.build import build
from lit_dqn.config.compose import plain
from lit_dqn.config.stored import foreign_code
from lit_dqn.config.words import command, shown_path
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import GymEnvs, close_quietly
from lit_dqn.evaluation import Evaluator
from lit_dqn.files import write_json
from lit_dqn.folder import RunFolder
from lit_dqn.global_generators import seed_global_generators
from lit_dqn.networks.qnetwork import acting_values
from lit_dqn.policy import Policy, network_of, policy_of
from lit_dqn.preflight import render_mode
from lit_dqn.report import print_table, result_values
from lit_dqn.run_log import run_log
from lit_dqn.seeding import integer_seed
from lit_dqn.training import devices_of, resumed_in, set_threads, train_in


def run_mode(config: DictConfig, folder: RunFolder) -> str:
    """Run a checked configuration in its folder; returns a short note for a sweep's table."""
    modes: dict[str, Callable[[DictConfig, RunFolder], str]] = {
        "train": _train,
        "eval": _evaluate,
        "play": _play,
    }
    return modes[config.mode](config, folder)


def _train(config: DictConfig, folder: RunFolder) -> str:
    values = plain(config)
    result = train_in(folder, values, resumed_in(values))
    path = shown_path(folder.path)
    best = folder.best if folder.best.is_file() else folder.last
    trust = {"trust": True} if foreign_code(plain(config)) else {}
    following = [
        "next:",
        f"  tensorboard --logdir {shlex.quote(str(path))}",
        "  " + command(mode="eval", ckpt=shown_path(best), **trust),
    ]
    if config.checkpoint.resumable:
        stopped = result["env_steps"] < config.total_env_steps
        more = (
            {"evaluation.stop_at_return": None}
            if stopped
            else {"total_env_steps": 2 * config.total_env_steps}
        )
        following.append("  " + command(resume=shown_path(folder.last), **more, **trust))
    print_table(result, path, following)
    return _score(result)


def _score(result: dict[str, Any]) -> str:
    mean = result["eval_return_mean"]
    return f"{result['env_steps']:,} env steps" + ("" if mean is None else f", evaluation {mean:.1f}")


def _evaluate(config: DictConfig, folder: RunFolder) -> str:
    started = time.perf_counter()
    values = plain(config)
    checkpoint = read_checkpoint(Path(config.ckpt))
    with run_log(folder):
        seed_global_generators(values["seed"])
        set_threads(values["trainer"]["threads"])
        names = ("episodes", "num_envs", "epsilon", "max_episode_steps")
        env = build("env", values["env"], trusted=True)
        stack = FrameStack.of(checkpoint[HEADER]["config"]["buffer"])
        evaluator = Evaluator(env, values["seed"], **{k: values["evaluation"][k] for k in names}, stack=stack)
        env_step = checkpoint["learner"]["env_step"]
        network = network_of(checkpoint, values).eval()
        network = network.to(device_of(values["trainer"]["gpus"]))
        evaluation = evaluator(acting_values(network), env_step)
        baseline = values["evaluation"]["random_baseline"]
        result = result_values(
            env_id=env.id,
            agent=values["agent"]["_target_"].rpartition(".")[2].lower(),
            seed=values["seed"],
            env_steps=env_step,
            updates=checkpoint["learner"].get("updates"),
            episodes=None,
            evaluation=evaluation,
            best=None,
            random_mean=evaluator.random_baseline().return_mean if baseline else None,
            seconds=time.perf_counter() - started,
            finished=True,
        )
        result |= {"env_steps_per_second": None, "updates_per_second": None}  # of training
        write_json(folder.result, result)
    print_table(result, shown_path(folder.path), [])
    return _score(result)


def device_of(gpus: int | list[int] | str | None) -> torch.device:
    """The (first) device of `trainer.gpus`."""
    accelerator, devices = devices_of(gpus)
    index = devices[0] if isinstance(devices, list) else 0
    return torch.device("cpu") if accelerator == "cpu" else torch.device("cuda", index)


def _play(config: DictConfig, folder: RunFolder) -> str:
    values = plain(config)
    with run_log(folder):
        policy = policy_of(read_checkpoint(Path(config.ckpt)), values)
        set_threads(values["trainer"]["threads"])
        env: GymEnvs = build("env", values["env"], trusted=True)
        mode = render_mode()
        longest = values["evaluation"]["max_episode_steps"]
        single = env.make_single(render_mode=mode, time_limit=min(env.time_limit or longest, longest))
        if mode != "human":
            single = gym.wrappers.RecordVideo(single, str(folder.path / "video"), lambda _: True)
        try:
            total = _episode(single, policy, integer_seed(values["seed"], "play"))
        finally:
            close_quietly(single)
    where = "" if mode == "human" else f"; the video is in {shown_path(folder.path / 'video')}"
    print(f"episode return {total:.1f}{where}")
    return f"return {total:.1f}"


def _episode(env: gym.Env[Any, Any], policy: Policy, seed: int) -> float:
    obs, _ = env.reset(seed=seed)
    act = policy.player()
    total, first, ended = 0.0, True, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(act(obs, first))
        first = False
        total += float(torch.as_tensor(reward).item())
        ended = terminated or truncated
    return total
