"""The whole training loop against a peer, the same work on both sides.

    python -m benchmarks.loop --work cartpole --against sb3 --require 2.5 5

The work: 60,000 env steps of CartPole-v1, one update per 10 env steps after the first 1,000, batch 128,
MLP 120-84, Huber loss, Adam, gradient norm 10, capacity 10,000, one torch thread. Ours has all its real
parts on (progress bar, TensorBoard, metrics.csv, checkpoints); neither side evaluates. Runs alternate, so
that a slow moment of the machine hits both; rates are medians, each a whole run including its set-up.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BATCH, HIDDEN, CAPACITY, STARTS, UPDATE_EVERY, ENVS = 128, [120, 84], 10_000, 1_000, 10, 32


def ours(env_steps: int) -> int:
    """lit_dqn with 32 envs and 32 updates per round; returns the env steps done."""
    from lit_dqn import compose, train

    config = compose(
        [
            "env=gym",
            "env.id=CartPole-v1",
            f"total_env_steps={env_steps}",
            f"network.hidden={HIDDEN}",
            f"buffer.capacity={CAPACITY}",
            f"buffer.batch_size={BATCH}",
            f"experience.num_envs={ENVS}",
            f"experience.steps_per_round={UPDATE_EVERY * ENVS}",
            f"experience.updates_per_round={ENVS}",
            f"experience.learning_starts={STARTS}",
            "agent.loss=huber",
            "agent.target_update_interval=50",
            "optimizer.lr=2.5e-4",
            "evaluation.episodes=0",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, Path(folder) / "run")
    assert result["updates"] >= (env_steps - STARTS) // UPDATE_EVERY
    return int(result["env_steps"])


def sb3(env_steps: int, num_envs: int, gradient_steps: int) -> int:
    """Stable-Baselines3's DQN; returns the env steps done."""
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=num_envs, seed=0),
        learning_rate=2.5e-4,
        buffer_size=CAPACITY,
        learning_starts=STARTS,
        batch_size=BATCH,
        train_freq=UPDATE_EVERY,
        gradient_steps=gradient_steps,
        target_update_interval=500,
        policy_kwargs={"net_arch": HIDDEN},
        device="cpu",
        seed=0,
    )
    model.learn(env_steps)
    return int(model.num_timesteps)


def rate(work: Callable[[], int]) -> float:
    """Env steps per second of one whole run."""
    started = time.perf_counter()
    steps = work()
    return steps / (time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", choices=["cartpole"], default="cartpole")
    parser.add_argument("--against", choices=["sb3"], default="sb3")
    parser.add_argument("--env-steps", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--require", type=float, nargs=2, metavar=("BEST", "DEFAULT"))
    args = parser.parse_args()
    steps = args.env_steps
    sides = {
        "lit_dqn": lambda: ours(steps),
        "SB3, best (32 envs)": lambda: sb3(steps, ENVS, ENVS),
        "SB3, default (1 env)": lambda: sb3(steps, 1, 1),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(args.repeats):
        for name, work in sides.items():
            rates[name].append(rate(work))
            print(
                f"run {repeat + 1}/{args.repeats}: {name}: {rates[name][-1]:,.0f} env steps/s",
                file=sys.stderr,
            )
    medians = {name: statistics.median(values) for name, values in rates.items()}
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}, medians of {args.repeats}")
    for name, median in medians.items():
        low, high = min(rates[name]), max(rates[name])
        print(f"{name:22} {median:8,.0f} env steps/s  ({low:,.0f} to {high:,.0f})")
    own, best, default = medians.values()
    print(f"{own / best:.2f} x SB3's best, {own / default:.2f} x its default")
    if args.require and (own / best < args.require[0] or own / default < args.require[1]):
        print(f"below what is required: {args.require[0]} and {args.require[1]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
