"""Values and paths as they are typed: every command that is shown works when it is pasted into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any


def shown(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return str(value) or "''"


def quoted(value: str) -> str:
    """A value that Hydra reads back as this text."""
    if value and all(c.isalnum() or c in "/._-" for c in value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def command(**values: Any) -> str:
    """`python -m lit_dqn key=value ...`; paths are quoted for Hydra, words for the shell."""
    words = [f"{k}={quoted(str(v)) if isinstance(v, Path) else shown(v)}" for k, v in values.items()]
    return shlex.join(["python", "-m", "lit_dqn", *words])


def shown_path(path: Path) -> Path:
    """Relative to where the user is, if it lies below."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
