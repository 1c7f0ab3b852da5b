"""A checkpoint's configuration, with what was typed on this command line put over it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from lit_dqn.config.build import PLUGGABLE, is_ours
from lit_dqn.config.compose import OPTIONAL, plain
from lit_dqn.config.schema import GROUPS
from lit_dqn.errors import UserError

OF_THIS_RUN = ("mode", "ckpt", "resume", "init_from", "trust")  # never taken from a checkpoint
FIXED = (
    "env",
    "agent",
    "network",
    "gamma",
    "seed",
    "buffer._target_",
    "buffer.n_step",
    "buffer.frame_stack",
    "buffer.stack_padding",
    "experience.num_envs",
    "experience.steps_per_round",
    "experience.learning_starts",
    "optimizer._target_",
)
SEEN_BY_THE_NETWORK = ("buffer.frame_stack", "buffer.stack_padding", "env.image_layout")


@dataclass(frozen=True)
class Stored:
    """What counts of a checkpoint when a command line names it."""

    path: Path
    config: dict[str, Any]
    resumable: bool

    @classmethod
    def read(cls, path: Path) -> Stored:
        """Read a file.

        Raises:
            UserError: there is no such file, or it is no checkpoint.
        """
        from lit_dqn.checkpoint_file import HEADER, is_resumable, read_checkpoint  # imports torch

        checkpoint = read_checkpoint(path)
        config = checkpoint[HEADER]["config"]
        for group in (*PLUGGABLE, *GROUPS):
            if not isinstance(config.get(group), dict):
                raise UserError(f"{path} is damaged: its configuration has no {group}.")
        if is_ours("env", config["env"].get("_target_")):
            config["env"].setdefault("image_layout", "auto")  # older files do not have it
        for key, value in _leaves(config):
            if "${" in str(value):  # ours are resolved; this one could come to mean anything when it is
                raise UserError(f"{path}: its configuration has an interpolation, which is refused: {key}.")
        return cls(path, config, is_resumable(checkpoint))


def merge_checkpoint(
    config: DictConfig, stored: Stored, typed: Sequence[Override], groups: set[str]
) -> DictConfig:
    """The checkpoint's configuration; only typed values replace it.

    Args:
        config: what the command line alone composes to.
        stored: the checkpoint it names in `ckpt` or `resume`.
        typed: the words of the command line.
        groups: names of the config groups.

    Raises:
        UserError: a change that a resumed run cannot take; code that the file names.
    """
    resuming, path = config.resume is not None, stored.path
    if resuming and not stored.resumable:
        last = path.with_name("last.ckpt")
        other = "" if path == last or not last.is_file() else f"resume={last} to continue that run, or "
        raise UserError(
            f"{path} holds weights only and cannot be resumed; type {other}"
            f"init_from={path} to start a new run from its weights."
        )
    merged = OmegaConf.create({**stored.config, **{key: config[key] for key in OF_THIS_RUN}})
    if not resuming:
        merged.trainer.gpus = config.trainer.gpus  # where it was trained says nothing about this machine
    for override in typed:
        key = override.key_or_group
        if key in OPTIONAL:
            raise UserError(f"{key}= does not go with resume= or ckpt=: the checkpoint has its own values.")
        if key in groups and key in config:
            merged[key] = config[key]
        elif key not in groups and key.partition(".")[0] in merged:
            OmegaConf.update(merged, key, OmegaConf.select(config, key), force_add=True)
    _refuse_changes(stored.config, plain(merged), resuming)
    if not config.trust:
        _refuse_foreign_code(stored.config, plain(merged), [o.key_or_group for o in typed])
    return merged


def _refuse_changes(before: dict[str, Any], after: dict[str, Any], resuming: bool) -> None:
    for key in differences(before, after):
        fixed_keys = FIXED if resuming else SEEN_BY_THE_NETWORK
        if any(key == fixed or key.startswith(fixed + ".") for fixed in fixed_keys):
            was = OmegaConf.select(OmegaConf.create(before), key)
            if not resuming:
                raise UserError(f"{key} belongs to the checkpoint, which was trained with {key}={was}.")
            raise UserError(
                f"{key} cannot change on resume (the run has {key}={was}); "
                "to start anew from its weights type init_from= instead of resume=."
            )


def foreign_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """{key: value} of what names code from outside lit_dqn."""
    targets = {f"{group}._target_": config[group].get("_target_") for group in PLUGGABLE}
    foreign = {key: t for key, t in targets.items() if not is_ours(key.partition(".")[0], t)}
    if ":" in str(config["env"].get("id")):
        foreign["env.id"] = config["env"]["id"]
    if not all(str(path).startswith("lit_dqn.") for path in config["env"].get("wrappers", [])):
        foreign["env.wrappers"] = config["env"]["wrappers"]
    return foreign


def _refuse_foreign_code(stored: dict[str, Any], merged: dict[str, Any], typed: list[str]) -> None:
    """What only the file names is not imported."""
    for key, value in foreign_code(merged).items():
        if foreign_code(stored).get(key) == value and not {key, key.partition(".")[0]} & {*typed}:
            raise UserError(
                f"the checkpoint names code from outside lit_dqn: {key}={value}; "
                "add trust=true if you know the file."
            )


def why_finished(path: Path, config: DictConfig) -> str | None:
    """Why the run of a checkpoint is complete under this configuration, and what to type; None: it is not."""
    from lit_dqn.checkpoint_file import read_checkpoint

    try:
        finished = json.loads((path.parent.parent / "result.json").read_text())["finished"]
    except (OSError, ValueError, KeyError):  # it is not there, or damaged: training writes it anew
        finished = False
    if not finished:
        return None
    checkpoint = read_checkpoint(path)
    done = checkpoint["learner"]["env_step"]
    if done >= config.total_env_steps:
        return f"{done:,} env steps; to train on, type a larger total_env_steps"
    last = checkpoint["callbacks"]["Evaluation"]["scores"]["last"]
    stop = config.evaluation.stop_at_return
    if stop is not None and last and sum(last["returns"]) / len(last["returns"]) >= stop:
        return f"{done:,} env steps, stopped at its return; to train on, type evaluation.stop_at_return=null"
    return None


def _leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a nested container as a dotted name, and every value."""
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
    for key, value in pairs:
        yield f"{prefix}{key}", key
        if isinstance(value, (Mapping, list, tuple)):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys whose values differ."""
    changed = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changed += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            changed.append(f"{prefix}{key}")
    return changed
