"""What several test files share: the trap envs, the recipe of a tiny run, and one way to start a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Property tests draw the same cases every time; `--hypothesis-profile=thousands` draws more of them.
for name, examples in (("hundreds", 300), ("thousands", 3000)):
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=True)
settings.load_profile("hundreds")

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))  # trap_envs, for this process ...
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
)  # ... and children

TINY = [
    "total_env_steps=400",
    "network.hidden=[16]",
    "buffer.n_step=1",
    "buffer.batch_size=8",
    "buffer.capacity=500",
    "experience.num_envs=2",
    "experience.learning_starts=40",
    "experience.steps_per_round=20",
    "experience.updates_per_round=2",
    "evaluation.interval=200",
    "evaluation.episodes=2",
    "evaluation.num_envs=2",
    "checkpoint.interval=200",
    "trainer.log_interval=100",
    "trainer.progress_bar=false",
]
"""Overrides of a run that takes a second."""


@pytest.fixture
def tiny_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Train in this process: `tiny_run("env=cartpole", "seed=1", run_dir=...)` -> result; TINY first."""

    def run(*overrides: str, run_dir: Path | None = None) -> dict[str, Any]:
        from lit_dqn import compose, train

        return train(compose([*TINY, *overrides]), run_dir or tmp_path / "run")

    return run


def command(*words: str, cwd: Path, timeout: float = 280, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m lit_dqn` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lit_dqn", *words],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Any]:
    """Starts real processes quickly; see `fork_server.ForkServer`."""
    from fork_server import ForkServer

    server = ForkServer()
    yield server
    server.close()
