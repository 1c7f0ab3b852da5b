"""Tiny runs for the tests of the training loop, and what must be equal between two of them."""

from __future__ import annotations

import csv
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from omegaconf import DictConfig, OmegaConf

import trap_envs  # noqa: F401  (registers its envs)
from conftest import TINY
from lit_dqn import compose, train
from lit_dqn.checkpoint_file import DATA, HEADER, REPLAY, ROWS
from lit_dqn.replay.row_files import read_files

BASE = [
    *TINY,
    "buffer.capacity=150",
    "evaluation.max_episode_steps=40",
    "trainer.log_interval=60",
    "optimizer.lr_end=null",  # no decay, whatever an env's recipe says
    "optimizer.lr_decay_env_steps=null",
]
"""The ring wraps, evaluations are short, and points fall between evaluations."""

OF_THE_CLOCK = ("wall_seconds", "env_steps_per_second", "updates_per_second", "peak_memory_mb")


@lru_cache
def _composed(groups: tuple[str, ...]) -> DictConfig:
    return compose([*BASE, *groups])


def config(*overrides: str) -> DictConfig:
    """A configuration; like `compose`, but what composes takes longer than a tiny run, so it is kept."""
    names = ("env", "env.id", "agent", "network", "optimizer", "buffer")
    groups = tuple(o for o in overrides if o.partition("=")[0] in names)
    values = [o for o in overrides if o not in groups]
    return OmegaConf.merge(_composed(groups), OmegaConf.from_dotlist(values))  # type: ignore[return-value]


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """Train into a folder."""
    return train(config(*overrides), folder)


def last(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def weights(folder: Path) -> dict[str, Any]:
    """What was learned, from last.ckpt."""
    content = load(last(folder))
    return {key: content[key] for key in ("state_dict", "optimizer_states", "learner")}


def metrics(folder: Path, *, clock: bool = False) -> list[dict[str, str]]:
    """The rows of metrics.csv, without the columns that measure time."""
    rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    return [{k: v for k, v in row.items() if clock or not k.startswith("time/")} for row in rows]


def result(folder: Path) -> dict[str, Any]:
    values = json.loads((folder / "result.json").read_text())
    return {k: v for k, v in values.items() if k not in OF_THE_CLOCK}


def rows(folder: Path) -> dict[str, torch.Tensor]:
    """The replay's rows that last.ckpt names, oldest first."""
    state = load(last(folder))[DATA][REPLAY][ROWS]
    parts = list(read_files(last(folder).parent / "replay", state["files"]))
    skipped = state["oldest"] - parts[0][0]
    return {name: torch.cat([part[name] for _, part in parts])[skipped:] for name in parts[0][1]}


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must be equal between a run and its equal, bit for bit."""
    content = load(last(folder))
    callbacks = content["callbacks"]
    del content[DATA][REPLAY][ROWS]["files"]  # how the rows are split into files says when they were saved
    del callbacks["Points"]["metrics_file_length"]  # bytes; the times in it have more digits or fewer
    best = folder / "checkpoints" / "best.ckpt"
    return {
        "weights": content["state_dict"],
        "optimizer": content["optimizer_states"],
        "experience": content[DATA] | {"rows": rows(folder)},
        "counters": content["learner"] | {"rounds": content["global_step"]},
        "callbacks": callbacks,
        "spaces": content[HEADER]["spaces"],
        "best": {k: v for k, v in load(best).items() if k != HEADER} if best.exists() else None,
        "metrics": metrics(folder),
        "result": result(folder),
    }


def difference(one: Any, other: Any, where: str = "") -> str | None:
    """Where two nested values first differ; None if they are equal in every bit."""
    if type(one) is not type(other):
        return f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{where}: keys {sorted(map(str, one.keys() ^ other.keys()))}"
        parts = [(one[k], other[k], f"{where}/{k}") for k in one]
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} items"
        parts = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
        return None if same else f"{where}: tensors differ"
    else:
        return None if one == other or (one != one and other != other) else f"{where}: {one} and {other}"
    return next(filter(None, (difference(*part) for part in parts)), None)


def assert_equal_runs(one: Path, other: Path) -> None:
    assert difference(outcome(one), outcome(other)) is None


class DictNoise(gym.Env[Any, Any]):
    """Observations of several kinds in a Dict; episodes of unequal length."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "noise": spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32),
                "place": spaces.Discrete(3, start=1),
                "flags": spaces.MultiBinary(2),
            }
        )
        self.action_space = spaces.Discrete(2, start=-1)

    def _obs(self) -> dict[str, Any]:
        return {
            "noise": self.np_random.random(2).astype(np.float32),
            "place": int(self.np_random.integers(1, 4)),
            "flags": self.np_random.integers(0, 2, size=2).astype(np.int8),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: int) -> Any:
        obs = self._obs()
        return obs, float(action * obs["noise"][0]), obs["place"] == 3, False, {}


class ImageNoise(gym.Env[Any, Any]):
    """Images of bytes; the reward is for the half that is brighter."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, shape=(8, 8), dtype=np.uint8)
        self.action_space = spaces.Discrete(2)

    def _obs(self) -> Any:
        self.image = self.np_random.integers(0, 256, size=(8, 8), dtype=np.uint8)
        return self.image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: int) -> Any:
        left = self.image[:, :4].mean() > self.image[:, 4:].mean()
        return self._obs(), float(left == (action == 0)), bool(self.image[0, 0] < 30), False, {}


if "Tests/DictNoise-v0" not in gym.registry:
    gym.register("Tests/ImageNoise-v0", entry_point="runs:ImageNoise", max_episode_steps=9)
    gym.register("Tests/DictNoise-v0", entry_point="runs:DictNoise", max_episode_steps=9)
