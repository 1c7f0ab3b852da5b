"""lit_dqn: deep Q-learning with experience replay. `compose`, `train` and `load` are the Python interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_dqn.config.compose import compose
    from lit_dqn.policy import load
    from lit_dqn.training import train

__all__ = ["compose", "load", "train"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lightning takes seconds to import: nobody should wait for it before using it.
    import importlib

    homes = {"compose": "lit_dqn.config.compose", "train": "lit_dqn.training", "load": "lit_dqn.policy"}
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'lit_dqn' has no attribute {name!r}")
