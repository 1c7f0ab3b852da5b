"""What a person reads at the end, and result.json."""

from __future__ import annotations

import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lit_dqn.types import EvaluationResult


def peak_memory_mb() -> float:
    """The process's largest resident size so far, in MB (10**6 bytes)."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size * (1 if sys.platform == "darwin" else 1024) / 1e6


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = ("lit-dqn", "torch", "pytorch-lightning", "gymnasium", "hydra-core", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def result_values(
    *,
    env_id: str,
    agent: str,
    seed: int,
    env_steps: int,
    updates: int | None,
    episodes: int | None,
    evaluation: EvaluationResult | None,
    best: float | None,
    random_mean: float | None,
    seconds: float,
    finished: bool,
) -> dict[str, Any]:
    """The content of result.json; what was not measured is None."""
    return {
        "env_id": env_id,
        "agent": agent,
        "seed": seed,
        "env_steps": env_steps,
        "updates": updates,
        "episodes": episodes,
        "eval_return_mean": evaluation and evaluation.return_mean,
        "eval_return_std": evaluation and evaluation.return_std,
        "eval_episodes": evaluation and len(evaluation.returns),
        "eval_cut_episodes": evaluation and evaluation.cut,
        "best_eval_return_mean": best,
        "random_return_mean": random_mean,
        "human_normalized": None,
        "wall_seconds": round(seconds, 3),
        "env_steps_per_second": round(env_steps / seconds, 1) if seconds and updates else None,
        "updates_per_second": round(updates / seconds, 1) if seconds and updates else None,
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "finished": finished,
        "versions": versions(),
    }


def print_table(result: dict[str, Any], folder: Path, next_lines: list[str]) -> None:
    """The small table at the end of a run, and what to type next."""
    table = Table(title=f"{result['agent']} on {result['env_id']}, seed {result['seed']}", show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for name, text in _rows(result, folder):
        table.add_row(name, Text(text))  # not markup: a path may hold brackets
    console = Console()
    console.print(table)
    for line in next_lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _rows(result: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    rows = []
    if result["eval_return_mean"] is not None:
        text = f"{result['eval_return_mean']:.1f} +- {result['eval_return_std']:.1f}"
        text += f" ({result['eval_episodes']} episodes"
        text += f", {result['eval_cut_episodes']} of them cut)" if result["eval_cut_episodes"] else ")"
        rows.append(("evaluation", text))
    if result["best_eval_return_mean"] is not None:
        rows.append(("best", f"{result['best_eval_return_mean']:.1f}"))
    if result["random_return_mean"] is not None:
        rows.append(("random", f"{result['random_return_mean']:.1f}"))
    rows.append(("env steps", f"{result['env_steps']:,}"))
    if result["updates"] is not None:
        rows.append(("updates", f"{result['updates']:,}"))
    rate = result["env_steps_per_second"]
    speed = f" ({rate:,.0f} env steps/s)" if rate else ""
    rows.append(("time", f"{result['wall_seconds']:.1f} s{speed}"))
    return [*rows, ("files", str(folder))]


def print_sweep(names: list[str], outcomes: list[tuple[str, str]]) -> None:
    """A sweep's jobs and their outcomes, (done, failed ...; what it did or why it failed), as a table."""
    table = Table(title="sweep")
    for column in ("job", "outcome", ""):
        table.add_column(column)
    for name, outcome in zip(names, outcomes, strict=True):
        table.add_row(*map(Text, (name, *outcome)))
    Console().print(table)
