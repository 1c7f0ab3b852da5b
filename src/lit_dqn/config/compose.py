"""From command-line words to a checked configuration; no Lightning, and torch only to check a class."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import lit_dqn
from lit_dqn.config.build import PLUGGABLE, check_group
from lit_dqn.config.planned import refuse_planned
from lit_dqn.config.problems import did_you_mean, shown
from lit_dqn.config.schema import check_central
from lit_dqn.errors import UserError

FREE_MAPPINGS = ("env.kwargs",)  # below these any key may be typed, with +
UNTUNED = ("env", "agent", "experiment", "tuned")  # choosing these does not drop a recipe's values


def conf_dir() -> Path:
    """The packaged conf/ (in a wheel), else the checkout's."""
    package = Path(lit_dqn.__file__).resolve().parent
    packaged = package / "conf"
    return packaged if packaged.is_dir() else package.parents[1] / "conf"


def register_resolvers() -> None:
    """`unique:` (one per process and sweep: no two runs share a folder) and `folder_name:`."""
    OmegaConf.register_new_resolver("unique", lambda: uuid.uuid4().hex[:8], use_cache=True, replace=True)
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


def folder_name(text: str) -> str:
    """Overrides as a folder's name: letters, digits, `.`, `_` and `-` alone, at most 120 characters."""
    text = text.replace(",", "_")
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)[:120] or "default"


class Composer:
    """Composes from conf/ and, before it in the search path, the user's own folder.

    Args:
        config_dir: Hydra's `--config-dir`.
        config_name: Hydra's `--config-name`.
    """

    def __init__(self, config_dir: str | None = None, config_name: str | None = None) -> None:
        if config_dir is not None and not Path(config_dir).is_dir():
            raise UserError(f"--config-dir {config_dir}: there is no such folder.")
        self.config_dir = None if config_dir is None else str(Path(config_dir).resolve())
        self.config_name = config_name or "config"

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The checked configuration of one run.

        Raises:
            UserError: one or two sentences that say what to type.
        """
        parsed = parse(overrides)
        for override in parsed:
            if override.is_sweep_override():
                raise UserError(f"{override.input_line}: several values are a sweep; add -m.")
        self.check_names(parsed)
        return self.compose_checked_names(parsed)

    def compose_checked_names(self, parsed: Sequence[Override]) -> DictConfig:
        """Like `compose`, for names that are known to be right."""
        typed = [str(o.input_line) for o in parsed]
        config = self._compose(typed)
        chosen = [o.key_or_group for o in parsed if o.key_or_group in self.options() and o.package is None]
        if own := [group for group in chosen if group not in UNTUNED]:
            # A group chosen by the user is taken as it is, without a recipe's values for another choice.
            plain = self._compose([*typed, "tuned=none"])
            for group in own:
                config[group] = plain[group]
        if config.resume not in (None, "auto") or config.ckpt is not None:
            from lit_dqn.config.stored import merge_checkpoint

            config = merge_checkpoint(config, parsed, set(self.options()))
        check(config)
        return config

    def check_names(self, parsed: Sequence[Override]) -> None:
        """Refuse unknown groups, options and keys, and names of later versions; imports no torch.

        Raises:
            UserError: names the nearest valid one.
        """
        groups = self.options()
        choices = [o for o in parsed if o.key_or_group in groups]
        for override in choices:
            for value in map(str, _values(override)):
                refuse_planned(override.key_or_group, value)
                known = groups[override.key_or_group]
                if value not in (*known, "None"):
                    raise UserError(
                        f"{override.key_or_group}={value} is unknown{did_you_mean(value, known)} "
                        f"Known: {', '.join(known)}."
                    )
        values = [o for o in parsed if o.key_or_group not in groups]
        for override in values:
            if not override.key_or_group.startswith("hydra"):
                for value in _values(override):
                    refuse_planned(override.key_or_group, value)
        first = [f"{o.key_or_group}={_values(o)[0]}" for o in choices]
        keys = list(flat_keys(self._compose(first)))
        for override in values:
            self._check_key(override, [*keys, *groups])

    def _check_key(self, override: Override, known: list[str]) -> None:
        key = override.key_or_group
        if key == "hydra" or key.startswith("hydra."):
            return
        if any(key == free or key.startswith(free + ".") for free in FREE_MAPPINGS):
            return
        if key not in known:
            raise UserError(f"unknown option {key}{did_you_mean(key, known)}")
        if override.type is OverrideType.DEL:
            raise UserError(f"~{key}: options cannot be removed; give {key} a value.")

    def options(self) -> dict[str, list[str]]:
        """{group: choices} of conf/ and the user's folder, without names that begin with `_`."""
        found: dict[str, set[str]] = {}
        for root in [conf_dir(), *([Path(self.config_dir)] if self.config_dir else [])]:
            for file in root.glob("*/*.yaml"):
                if not file.stem.startswith("_"):
                    found.setdefault(file.parent.name, set()).add(file.stem)
        return {group: sorted(names) for group, names in sorted(found.items()) if group != "hydra"}

    def _compose(self, overrides: list[str]) -> DictConfig:
        search = [f"hydra.searchpath=[file://{self.config_dir}]"] if self.config_dir else []
        with _own_hydra():
            try:
                return hydra_compose(self.config_name, overrides=[*overrides, *search])
            except (HydraException, OmegaConfBaseException) as error:
                lines = [
                    line for e in (error, error.__cause__) if e for line in str(e).split("\n") if line.strip()
                ]
                raise UserError(" ".join(lines[:2])) from error


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The checked configuration for these command-line words, e.g. `["env=cartpole", "seed=1"]`.

    Raises:
        UserError: one or two sentences that say what to type.
    """
    return Composer().compose(overrides)


def parse(overrides: Sequence[str]) -> list[Override]:
    """Hydra's reading of the words.

    Raises:
        UserError: a word is no override.
    """
    try:
        return list(OverridesParser.create().parse_overrides(list(overrides)))
    except HydraException as error:
        reason = str(error).split("\n")[0]
        raise UserError(
            f"{reason}. Options are typed as key=value; a value with = or , in it as 'key=\"...\"'."
        ) from error


def _values(override: Override) -> list[Any]:
    """The value of an override, or the values of a sweep over choices."""
    if override.is_choice_sweep() or override.is_range_sweep():
        return [v.strip("'\"") for v in override.sweep_string_iterator()]
    return [override.value()]


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Compose also inside a running Hydra application, and leave that one as it was."""
    register_resolvers()
    outer = copy.copy(GlobalHydra.instance().hydra)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().clear()
        if outer is not None:
            GlobalHydra.instance().initialize(outer)


def flat_keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Every dotted key, inner ones too."""
    for key in config:
        name = f"{prefix}{key!s}"
        yield name
        if not OmegaConf.is_missing(config, key) and isinstance(config[key], DictConfig):
            yield from flat_keys(config[key], name + ".")


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain containers, interpolations resolved.

    Raises:
        UserError: a mandatory value is missing.
    """
    missing = OmegaConf.missing_keys(config)
    if missing:
        key = min(missing)
        raise UserError(f"{key} is missing: type {key}=VALUE.")
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(k): v for k, v in values.items()}


def check(config: DictConfig) -> None:
    """Check a composed configuration: names, types, ranges, and what goes together.

    Raises:
        UserError: one sentence.
    """
    values = plain(config)
    check_central(values, PLUGGABLE)
    for group in PLUGGABLE:
        check_group(group, values[group])
    check_devices(values["trainer"]["gpus"])


def device_count() -> int:
    """CUDA devices on this machine."""
    import torch

    return torch.cuda.device_count()


def check_devices(gpus: int | list[int] | str | None) -> None:
    """Refuse GPUs that are not there.

    Raises:
        UserError: says what to type instead.
    """
    if gpus in (None, 0, "auto", []):
        return
    there = device_count()
    if there == 0:
        raise UserError(
            f"trainer.gpus={gpus}: no CUDA device was found; type trainer.gpus=0 to run on the CPU."
        )
    wanted = gpus if isinstance(gpus, list) else list(range(there if gpus == -1 else int(gpus)))
    if any(index >= there for index in wanted):
        raise UserError(
            f"trainer.gpus={shown(gpus)}: this machine has {there} CUDA device(s), numbered from 0."
        )
    if len(wanted) > 1:
        raise UserError(
            f"trainer.gpus={shown(gpus)}: several GPUs are for a later version; type trainer.gpus=1."
        )


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
