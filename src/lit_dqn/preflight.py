"""Every part of a run is put together once before a folder is made: what cannot work is refused here.

Imports torch but no Lightning.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lit_dqn.agents.agent import Agent
from lit_dqn.checkpoint_file import HEADER, check_row_files, read_checkpoint
from lit_dqn.config.build import build
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import GymEnvs, close_quietly
from lit_dqn.envs.spaces import describe
from lit_dqn.errors import UserError
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.policy import agent_and_network, load_weights, network_of
from lit_dqn.replay.sampler import Sampler
from lit_dqn.seeding import integer_seed


def check_parts(config: dict[str, Any]) -> list[str]:
    """Build what `config` describes, and let go of it.

    Returns:
        Advice: what will run but is hardly meant, a sentence each.

    Raises:
        UserError: one sentence.
    """
    if config["resume"] not in (None, "auto"):
        resumed = Path(config["resume"])
        check_row_files(resumed, read_checkpoint(resumed))
    env = build("env", config["env"], trusted=True)
    if config["mode"] == "train":
        learning_parts(config, env)
        return _advice_on_cuts(config, env)
    checkpoint = read_checkpoint(Path(config["ckpt"]))
    network_of(checkpoint, config)
    _check_spaces(checkpoint, env)
    if config["mode"] == "play":
        check_rendering(env, render_mode())
    return []


def _advice_on_cuts(config: dict[str, Any], env: Any) -> list[str]:
    """Checkpoints end the running episodes; too close together, no long one is ever seen to its end."""
    interval, num_envs = config["checkpoint"]["interval"], config["experience"]["num_envs"]
    longest = interval // num_envs
    if env.time_limit is None or longest >= env.time_limit or config["total_env_steps"] <= interval:
        return []
    enough = 2 * num_envs * env.time_limit
    return [
        f"episodes of {env.id} last up to {env.time_limit} steps, but checkpoint.interval={interval} ends "
        f"them after {longest} in each of {num_envs} envs; type checkpoint.interval={enough}."
    ]


def learning_parts(config: dict[str, Any], env: Any) -> tuple[Agent, QNetwork, Sampler]:
    """The agent, its network, with the weights of `init_from`, and the replay for an env.

    Raises:
        UserError: the weights do not fit, or the replay is too small.
    """
    space = env.observation_space
    agent, network = agent_and_network(config, space.shape, env.num_actions, trusted=True)
    network.action_mask = env.action_mask
    if config["init_from"] is not None:
        start = read_checkpoint(Path(config["init_from"]))
        try:
            load_weights(network, start)
        except UserError as error:
            trained = dict(start[HEADER]["config"]["network"])
            name = trained.pop("_target_").rpartition(".")[2]
            frames = FrameStack.of(start[HEADER]["config"]["buffer"]).count
            raise UserError(
                f"init_from={config['init_from']}: {error} It was trained with {name} {trained} "
                f"and buffer.frame_stack={frames}."
            ) from error
    dtype = torch.uint8 if space.dtype == np.uint8 else torch.float32
    num_envs, seed = config["experience"]["num_envs"], integer_seed(config["seed"], "replay")
    rows = (space.shape, dtype, num_envs, config["gamma"], seed)
    replay: Sampler = build("buffer", config["buffer"], *rows, trusted=True)
    return agent, network, replay


def _check_spaces(checkpoint: dict[str, Any], env: Any) -> None:
    spaces = {"observation": env.raw_observation_space, "action": env.action_space}
    for name, space in spaces.items():
        there, here = checkpoint[HEADER]["spaces"][name], describe(space)
        if there != here:
            raise UserError(
                f"env {env.id} does not go with the checkpoint: its {name} space is {here}, not {there}."
            )


def render_mode() -> str:
    """`human` where a window can be opened, else `rgb_array` for a video file."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return "human" if screen else "rgb_array"


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
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would complain that there is no screen
        try:
            import moviepy  # noqa: F401
        except ImportError as error:
            raise UserError(
                'mode=play needs moviepy for a video file; type pip install "lit-dqn[play]"'
            ) from error
