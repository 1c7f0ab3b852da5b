"""What a sweep over seeds learnt: last and best evaluation apart, with an interval over the seeds.

    python -m lit_dqn -m env=cartpole "seed=range(10)" evaluation.episodes=100 hydra.sweep.dir=outputs/cp
    python -m benchmarks.learning outputs/cp --threshold 475 --require 490

Reads every result.json below the folders. The interval is the 95 % bootstrap interval of the mean over
seeds (BCa, scipy).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from scipy.stats import bootstrap


def results_below(folders: list[Path]) -> list[dict[str, object]]:
    """The finished results, by seed."""
    found = [json.loads(path.read_text()) for folder in folders for path in folder.rglob("result.json")]
    unfinished = [r["seed"] for r in found if not r["finished"]]
    if unfinished or not found:
        sys.exit(f"not finished: seeds {unfinished}" if found else f"no result.json below {folders}")
    return sorted(found, key=lambda r: r["seed"])


def summary(scores: np.ndarray) -> str:
    """Mean, standard deviation over seeds and the interval of the mean."""
    text = f"{scores.mean():.1f} +- {scores.std():.1f}"
    if len(scores) < 3 or np.ptp(scores) == 0:
        return text
    generator = np.random.default_rng(0)
    interval = bootstrap((scores,), np.mean, rng=generator).confidence_interval
    return f"{text} [{interval.low:.1f}, {interval.high:.1f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--threshold", type=float, help="count the seeds whose last evaluation reaches this")
    parser.add_argument("--require", type=float, help="exit 1 if the mean of the last evaluations is below")
    args = parser.parse_args()
    results = results_below(args.folders)
    last = np.array([r["eval_return_mean"] for r in results], dtype=float)
    best = np.array([r["best_eval_return_mean"] for r in results], dtype=float)
    first = results[0]
    print(f"{first['agent']} on {first['env_id']}, {first['env_steps']:,} env steps, {len(results)} seeds,")
    print(
        f"{first['eval_episodes']} greedy episodes per evaluation; mean +- std over seeds [95 % of the mean]"
    )
    print(f"last  {summary(last)}")
    print(f"best  {summary(best)}")
    print("last, by seed: " + ", ".join(f"{r['seed']}: {x:.1f}" for r, x in zip(results, last, strict=True)))
    if args.threshold is not None:
        print(f"last >= {args.threshold:g}: {(last >= args.threshold).sum()} of {len(last)}")
    print(f"wall time per run: median {np.median([r['wall_seconds'] for r in results]):.0f} s")
    return int(args.require is not None and last.mean() < args.require)


if __name__ == "__main__":
    sys.exit(main())
