"""What one job does: train, evaluate a checkpoint, or show it playing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from omegaconf import DictConfig

from lit_dqn.checkpoint_file import read_checkpoint
from lit_dqn.cli import shown_path
from lit_dqn.config.build import build
from lit_dqn.config.compose import plain
from lit_dqn.envs.gym import GymEnvs, close_quietly
from lit_dqn.errors import UserError
from lit_dqn.evaluation import Evaluator
from lit_dqn.files import write_json
from lit_dqn.folder import RunFolder
from lit_dqn.networks.qnetwork import acting_values
from lit_dqn.policy import load, network_of
from lit_dqn.report import print_table, result_values
from lit_dqn.seeding import integer_seed
from lit_dqn.training import run_log, seed_global_generators, set_threads, train


def run_mode(config: DictConfig, folder: RunFolder) -> str:
    """Run a checked configuration in its folder; returns a short note for a sweep's table."""
    modes: dict[str, Callable[[DictConfig, RunFolder], str]] = {
        "train": _train,
        "eval": _evaluate,
        "play": _play,
    }
    return modes[config.mode](config, folder)


def _train(config: DictConfig, folder: RunFolder) -> str:
    result = train(config, folder.path)
    path = shown_path(folder.path)
    trust = " trust=true" if config.trust or ":" in config.env.id or config.env.wrappers else ""
    best = folder.best if folder.best.is_file() else folder.last
    print_table(
        result,
        path,
        [
            "next:",
            f"  tensorboard --logdir {path}",
            f"  python -m lit_dqn mode=eval ckpt={shown_path(best)}{trust}",
            f"  python -m lit_dqn resume={shown_path(folder.last)} "
            f"total_env_steps={2 * config.total_env_steps}{trust}",
        ],
    )
    return _score(result)


def _score(result: dict[str, Any]) -> str:
    mean = result["eval_return_mean"]
    return f"{result['updates']:,} updates" + ("" if mean is None else f", evaluation {mean:.1f}")


def _evaluate(config: DictConfig, folder: RunFolder) -> str:
    values = plain(config)
    checkpoint = read_checkpoint(Path(config.ckpt))
    if values["evaluation"]["episodes"] < 1:
        raise UserError("mode=eval needs evaluation.episodes >= 1, got 0.")
    with run_log(folder):
        seed_global_generators(values["seed"])
        set_threads(values["trainer"]["threads"])
        names = ("episodes", "num_envs", "epsilon", "max_episode_steps")
        env = build("env", values["env"], trusted=True)
        evaluator = Evaluator(env, values["seed"], **{k: values["evaluation"][k] for k in names})
        env_step = checkpoint["learner"]["env_step"]
        evaluation = evaluator(acting_values(network_of(checkpoint)), env_step)
        baseline = values["evaluation"]["random_baseline"]
        result = result_values(
            env_id=env.id,
            agent=values["agent"]["_target_"].rpartition(".")[2].lower(),
            seed=values["seed"],
            env_steps=env_step,
            updates=checkpoint["learner"].get("updates", 0),
            episodes=None,
            evaluation=evaluation,
            best=None,
            random_mean=evaluator.random_baseline().return_mean if baseline else None,
            seconds=0.0,
            finished=True,
        )
        write_json(folder.result, result)
    print_table(result, shown_path(folder.path), [])
    return _score(result)


def _play(config: DictConfig, folder: RunFolder) -> str:
    values = plain(config)
    policy = load(config.ckpt)
    set_threads(values["trainer"]["threads"])
    env: GymEnvs = build("env", values["env"], trusted=True)
    window = has_screen()
    mode = "human" if window else "rgb_array"
    check_rendering(env, mode)
    single = env.make_single(render_mode=mode, time_limit=values["evaluation"]["max_episode_steps"])
    if not window:
        single = gym.wrappers.RecordVideo(single, str(folder.path / "video"), lambda _: True)
    try:
        returns = [_episode(single, policy, integer_seed(values["seed"], "play", i)) for i in range(1)]
    finally:
        close_quietly(single)
    where = "" if window else f"; the video is in {shown_path(folder.path / 'video')}"
    print(f"episode return {returns[0]:.1f}{where}")
    return f"return {returns[0]:.1f}"


def _episode(env: gym.Env[Any, Any], policy: Any, seed: int) -> float:
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = int(policy.act(batch_of_one(obs))[0])
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(torch.as_tensor(reward).item())
        ended = terminated or truncated
    return total


def batch_of_one(obs: Any) -> Any:
    """One observation as a batch [1, ...], inside Dict and Tuple too."""
    if isinstance(obs, dict):
        return {key: batch_of_one(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(batch_of_one(value) for value in obs)
    return [obs]


def has_screen() -> bool:
    """Whether a window can be opened."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def check_rendering(env: GymEnvs, mode: str) -> None:
    """Refuse at once what could not be shown.

    Raises:
        UserError: the env cannot render so, or a package is missing.
    """
    probe = env.make_single()
    modes = probe.metadata.get("render_modes", [])
    close_quietly(probe)
    if mode not in modes:
        raise UserError(f"mode=play: env {env.id} has no render mode {mode!r} (it has {modes or 'none'}).")
    if mode == "rgb_array":
        try:
            import moviepy  # noqa: F401
        except ImportError as error:
            raise UserError(
                'mode=play needs moviepy for a video file; type pip install "lit-dqn[play]"'
            ) from error
