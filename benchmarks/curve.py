"""A picture of evaluation curves from runs' metrics.csv, one line per run.

python -m benchmarks.curve outputs/cartpole docs/cartpole.png --title "CartPole-v1, dqn"
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib.pyplot as plt


def points(path: Path, column: str) -> tuple[list[int], list[float]]:
    """Env steps and values of a column, without the rows that do not have it."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row[column]]
    return [int(row["env_step"]) for row in rows], [float(row[column]) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=110)
    files = sorted(args.folder.rglob("metrics.csv"))
    for path in files:
        axes.plot(*points(path, "episode/return"), color="tab:blue", alpha=0.25, linewidth=0.8)
        axes.plot(*points(path, "eval/return_mean"), color="tab:orange", marker="o", alpha=0.7)
    random_mean = sum(points(path, "eval/random_return")[1][0] for path in files) / len(files)
    axes.axhline(random_mean, color="grey", linestyle=":")
    axes.plot([], [], color="tab:blue", label="training episodes")
    axes.plot([], [], color="tab:orange", marker="o", label="evaluation, greedy")
    axes.plot([], [], color="grey", linestyle=":", label="random actions")
    axes.set(xlabel="env steps", ylabel="episode return", title=f"{args.title}, seeds: {len(files)}")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(args.picture)


if __name__ == "__main__":
    main()
