"""The replay against its peers and against the memory it moves: the same shapes, in one run, by medians.

    python -m benchmarks.replay --require           # every row; needs 16 GB
    python -m benchmarks.replay small prioritized   # some of them

Every page is written before anything is timed. Sides take turns, so that a slow moment of the machine hits
all of them; a figure is the median over the turns. `--require` exits 1 where a row falls short.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lit_dqn.allocator import keep_freed_memory
from lit_dqn.replay.buffer import ReplayBuffer
from lit_dqn.replay.prioritized import PrioritizedReplay
from lit_dqn.replay.segments import Segments
from lit_dqn.replay.uniform import UniformReplay

TURNS = 7
Times = dict[str, float]


class Report:
    """Prints figures and remembers which fall short."""

    def __init__(self) -> None:
        self.short: list[str] = []

    def times(self, title: str, times: Times) -> None:
        print(f"\n{title}")
        for name, seconds in times.items():
            print(f"  {name:44} {1e6 * seconds:12,.1f} us")

    def ratio(
        self, text: str, value: float, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        wanted = [f">= {at_least}"] if at_least is not None else []
        wanted += [f"<= {at_most}"] if at_most is not None else []
        fine = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        print(f"  {text:44} {value:12.2f}     (to reach: {' and '.join(wanted)}{'' if fine else '; SHORT'})")
        if not fine:
            self.short.append(text)


def measure(sides: dict[str, Callable[[], object]], seconds: float = 0.3) -> Times:
    """Median time of a call of each side; the sides take turns."""
    counts = {}
    for name, call in sides.items():
        call()
        started = time.perf_counter()
        call()
        counts[name] = max(1, int(seconds / TURNS / (time.perf_counter() - started)))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, call in sides.items():
            started = time.perf_counter()
            for _ in range(counts[name]):
                call()
            taken[name].append((time.perf_counter() - started) / counts[name])
    return {name: statistics.median(values) for name, values in taken.items()}


def filled(
    cls: Any, obs_shape: tuple[int, ...], dtype: torch.dtype, rows: int, num_envs: int, **options: Any
) -> Any:
    """A replay with every page written; an ending every 200 rows or so."""
    replay = cls(obs_shape, dtype, num_envs, 0.99, 0, capacity=rows, **options)
    buffer, random = replay.buffer, np.random.default_rng(0)
    pages = buffer.obs.numpy()
    if dtype == torch.uint8:
        pages[...] = random.integers(0, 255, size=pages.shape[1:], dtype=np.uint8)
    else:
        pages[...] = random.normal(size=pages.shape[1:])
    last = random.random(buffer.valid.shape) < 1 / 200
    buffer.valid.copy_(torch.from_numpy(~np.roll(last, 1, axis=0)))
    buffer.boundary.copy_(torch.from_numpy(last) & buffer.valid)
    buffer.terminated.copy_(buffer.boundary)
    buffer.reward.fill_(1.0)
    buffer.rows_added = buffer.length
    return replay


def sb3_buffer(obs_shape: tuple[int, ...], dtype: Any, rows: int, num_envs: int, memory: bool = False) -> Any:
    """Stable-Baselines3's buffer, every page written."""
    from gymnasium import spaces
    from stable_baselines3.common import buffers

    high = 255 if dtype is np.uint8 else 1
    buffer = buffers.ReplayBuffer(
        rows,
        spaces.Box(0, high, obs_shape, dtype),
        spaces.Discrete(4),
        n_envs=num_envs,
        optimize_memory_usage=memory,
        handle_timeout_termination=not memory,
    )
    random = np.random.default_rng(0)
    pages = [buffer.observations] if memory else [buffer.observations, buffer.next_observations]
    for column in pages:
        column[...] = random.integers(0, high, size=column.shape[1:], endpoint=True).astype(dtype)
    buffer.full = True
    return buffer


def small(report: Report) -> None:
    """Vectors: a stacked round of 32 minibatches."""
    ours = filled(UniformReplay, (4,), torch.float32, 100_000, 32, batch_size=128)
    theirs = sb3_buffer((4,), np.float32, 100_000, 32)
    times = measure({"ours, 32 x 128": lambda: ours.sample(32), "SB3, 128": lambda: theirs.sample(128)})
    times["ours, 32 x 128"] /= 32
    report.times("observations of 4 floats, 100k rows, per minibatch of 128", times)
    report.ratio("faster than SB3", times["SB3, 128"] / times["ours, 32 x 128"], at_least=5)


def images(report: Report) -> None:
    """Small images with their successors."""
    ours = filled(UniformReplay, (32, 32, 3), torch.uint8, 500_000, 1, batch_size=256)
    theirs = sb3_buffer((32, 32, 3), np.uint8, 500_000, 1)
    frames = ours.buffer.obs.view(500_000, -1)
    generator = torch.Generator().manual_seed(0)

    def bare() -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(499_999, (256,), generator=generator)
        return frames.index_select(0, rows), frames.index_select(0, rows + 1)  # both are kept, as in a batch

    for threads, least in ((1, 1.0), (2, 1.8)):
        torch.set_num_threads(threads)
        times = measure(
            {
                "ours": lambda: ours.sample(1),
                "ours, a minibatch of a round of 8": lambda: ours.sample(8),
                "a bare gather": bare,
                "SB3": lambda: theirs.sample(256),
            }
        )
        times["ours, a minibatch of a round of 8"] /= 8
        report.times(f"256 x (32, 32, 3) with next obs, 500k rows, {threads} thread(s)", times)
        if threads == 1:
            report.ratio("times a bare gather", times["ours"] / times["a bare gather"], at_most=1.3)
        report.ratio(f"faster than SB3, {threads} thread(s)", times["SB3"] / times["ours"], at_least=least)
    torch.set_num_threads(1)


def atari(report: Report) -> None:
    """Stacks of four frames out of single ones."""
    ours = filled(UniformReplay, (84, 84), torch.uint8, 1_000_000, 8, batch_size=32, frame_stack=4)
    theirs = sb3_buffer((4, 84, 84), np.uint8, 200_000, 8, memory=True)
    frames = ours.buffer.obs.view(1_000_000, -1)
    generator = torch.Generator().manual_seed(0)

    def bare() -> torch.Tensor:
        first = torch.randint(999_000, (256, 1), generator=generator)
        return frames.index_select(0, (first + 8 * torch.arange(5)).flatten())

    def sb3_round() -> None:
        for _ in range(8):
            theirs.sample(32)

    times = measure(
        {"ours, 8 x 32": lambda: ours.sample(8), "a bare gather": bare, "SB3, 8 times 32": sb3_round}, 3.0
    )
    moved = 256 * 5 * 84 * 84
    report.times(
        f"8 x 32 stacks of 4 x 84 x 84 with next obs; ours reads {moved / 1e6:.1f} MB, SB3 14.5 MB", times
    )
    report.ratio(
        "times a bare gather of the five frames", times["ours, 8 x 32"] / times["a bare gather"], at_most=1.3
    )
    report.ratio("faster than SB3", times["SB3, 8 times 32"] / times["ours, 8 x 32"], at_least=1.9)


class ScalarTree:
    """A binary sum tree looked after in Python, one leaf at a time."""

    def __init__(self, size: int) -> None:
        self.size = 1 << (size - 1).bit_length()
        self.sums = [0.0] * (2 * self.size)

    def set(self, leaf: int, value: float) -> None:
        node = leaf + self.size
        self.sums[node] = value
        while node > 1:
            node //= 2
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def find(self, target: float) -> int:
        node = 1
        while node < self.size:
            node *= 2
            if target >= self.sums[node]:
                target -= self.sums[node]
                node += 1
        return node - self.size


def prioritized(report: Report) -> None:
    """Sample, weights and update of one minibatch."""
    import cpprb

    rows, batch = 1_000_000, 256
    random = np.random.default_rng(0)
    ours = filled(PrioritizedReplay, (4,), torch.float32, rows, 1, batch_size=batch)
    ours.can_sample()
    new, new_of_round = torch.rand(1, batch), torch.rand(32, batch)

    def our_turn() -> None:
        ours.update_priorities(ours.sample(1).index, new)

    def our_round() -> None:
        ours.update_priorities(ours.sample(32).index, new_of_round)

    theirs = cpprb.PrioritizedReplayBuffer(
        rows, {"obs": {"shape": 4}, "act": {}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
    )
    for _ in range(rows // 10_000):
        obs = random.normal(size=(10_000, 4))
        one = np.ones(10_000)
        theirs.add(obs=obs, act=one, rew=one, next_obs=obs, done=one, priorities=random.random(10_000) + 0.1)

    def their_turn() -> None:
        drawn = theirs.sample(batch, beta=0.4)
        theirs.update_priorities(drawn["indexes"], new[0].numpy())

    scalar = ScalarTree(rows)
    for leaf in range(rows):
        scalar.sums[scalar.size + leaf] = 1.0
    for node in range(scalar.size - 1, 0, -1):
        scalar.sums[node] = scalar.sums[2 * node] + scalar.sums[2 * node + 1]

    def scalar_turn() -> None:
        total = scalar.sums[1]
        leaves = [scalar.find(total * share) for share in random.random(batch)]
        weights = np.array([scalar.sums[scalar.size + leaf] for leaf in leaves]) ** -0.4
        weights /= weights.max()
        for leaf, value in zip(leaves, new[0].tolist(), strict=True):
            scalar.set(leaf, value)

    sides = {
        "ours, one at a time": our_turn,
        "ours, a round of 32": our_round,
        "cpprb (C++)": their_turn,
        "a scalar loop, tree alone": scalar_turn,
    }
    times = measure(sides, 1.0)
    times["ours, a round of 32"] /= 32
    report.times("prioritised, 1M rows, per minibatch of 256: sample, weights, update", times)
    for name in ("one at a time", "a round of 32"):
        report.ratio(
            f"faster than cpprb, {name}", times["cpprb (C++)"] / times[f"ours, {name}"], at_least=1.5
        )
        slow = times["a scalar loop, tree alone"]
        report.ratio(f"faster than a scalar loop, {name}", slow / times[f"ours, {name}"], at_least=8)


def add(report: Report) -> None:
    """Writing one vector step."""
    envs = 32
    flags, action = np.zeros(envs, dtype=bool), np.zeros(envs, dtype=np.int64)
    reward, infos, valid = np.zeros(envs), [{} for _ in range(envs)], ~flags
    for shape, dtype in (((4,), np.float32), ((84, 84), np.uint8)):
        kind = torch.uint8 if dtype is np.uint8 else torch.float32
        ours = filled(UniformReplay, shape, kind, 32_000, envs)
        theirs = sb3_buffer(shape, dtype, 32_000, envs)
        obs = np.zeros((envs, *shape), dtype)
        times = measure(
            {
                "ours": lambda o=ours, x=obs: o.add(x, action, reward, flags, flags, valid),
                "SB3": lambda t=theirs, x=obs: t.add(x, x, action, reward, flags, infos),
            }
        )
        report.times(f"add one step of 32 envs, observations {shape}", times)
        report.ratio("of SB3's time", times["ours"] / times["SB3"], at_most=1 / 3)


def memory(report: Report) -> None:
    """Bytes per Atari transition."""
    buffer = ReplayBuffer((84, 84), torch.uint8, 1, capacity=10_000, frame_stack=4)
    print("\nmemory per Atari transition, stacks of four included")
    report.ratio("kB", buffer.row_bytes / 1000, at_most=7.3)


def scaling(report: Report) -> None:
    """Time per sample as the replay grows."""
    sizes = (10_000, 100_000, 1_000_000)
    for cls, most in ((UniformReplay, 2.0), (PrioritizedReplay, 3.0)):
        replays = {
            f"{rows:,} rows": filled(cls, (4,), torch.float32, rows, 8, batch_size=128) for rows in sizes
        }
        times = measure({name: lambda r=replay: r.sample(32) for name, replay in replays.items()}, 1.0)
        report.times(f"{cls.__name__}, a round of 32 x 128", times)
        low, *_, high = times.values()
        report.ratio("1M rows against 10k (caches are smaller)", high / low, at_most=most)
    bare = {f"{rows:,} rows": bare_rounds(rows) for rows in sizes}
    times = measure(bare, 1.0)
    report.times("a bare gather of what a round of 32 x 128 reads, for comparison", times)
    low, *_, high = times.values()
    print(f"  1M rows against 10k {high / low:38.2f}")


def bare_rounds(rows: int) -> Callable[[], None]:
    """Gathers the columns of a round's transitions at random rows, and does nothing else."""
    obs = torch.randn(rows, 4)
    scalars = [torch.zeros(rows, dtype=d) for d in (torch.int32, torch.float32, torch.bool, torch.bool)]

    def gather() -> None:
        index = torch.randint(rows - 8, (32 * 128,))
        for column in scalars:
            column.index_select(0, index)
        obs.index_select(0, index)
        obs.index_select(0, index + 8)

    return gather


def checkpoint(report: Report) -> None:
    """A checkpoint of an Atari replay after 50k new rows."""
    print("\na checkpoint of an Atari-shaped replay of 1M rows")
    frames = atari_frames(2_000)
    with tempfile.TemporaryDirectory() as folder:
        buffer = ReplayBuffer((84, 84), torch.uint8, 8, capacity=1_000_000)
        segments = Segments(Path(folder))
        taken, sizes = [], []
        for rows in (1_000_000, 50_000, 50_000):
            for step in range(rows // 8):
                obs = frames[(step * 8 + np.arange(8)) % len(frames)]
                buffer.add(obs, *(np.zeros(8, dtype=bool) for _ in range(4)), np.ones(8, dtype=bool))
            before = set(Path(folder).iterdir())
            started = time.perf_counter()
            segments.write_new(buffer)
            taken.append(time.perf_counter() - started)
            sizes.append(sum(path.stat().st_size for path in set(Path(folder).iterdir()) - before))
            print(f"  {rows:9,} new rows: {taken[-1]:6.1f} s, {sizes[-1] / 1e6:8.1f} MB")
        copy = ReplayBuffer((84, 84), torch.uint8, 8, capacity=1_000_000)
        Segments(Path(folder)).load_state_dict(segments.state_dict(buffer), copy)
        same = copy.oldest == buffer.oldest and all(
            torch.equal(column, copy._read[name]) for name, column in buffer._read.items()
        )
    report.ratio("bytes, 50k against 1M rows", sizes[1] / sizes[0], at_most=0.06)
    report.ratio("time, 50k against 1M rows", taken[1] / taken[0], at_most=0.1)
    report.ratio("resumed equal byte for byte", float(same), at_least=1)


def atari_frames(count: int) -> Any:
    """Frames [count, 84, 84] of a real game played at random."""
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv("breakout", num_envs=8, stack_num=1)
    envs.action_space.seed(0)
    frames = [envs.reset(seed=0)[0]]
    while 8 * len(frames) < count:
        frames.append(envs.step(envs.action_space.sample())[0])
    return np.concatenate(frames).reshape(-1, 84, 84)[:count]


ROWS = {f.__name__: f for f in (small, images, atari, prioritized, add, memory, scaling, checkpoint)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="all of them if none is named")
    parser.add_argument("--require", action="store_true", help="exit 1 where a row falls short")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # for both sides; training does it, too
    report = Report()
    for name in args.rows or ROWS:
        ROWS[name](report)
    if report.short:
        print(f"\nshort: {'; '.join(report.short)}", file=sys.stderr)
    return int(args.require and bool(report.short))


if __name__ == "__main__":
    sys.exit(main())
