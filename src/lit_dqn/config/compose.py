"""From command-line words to a checked configuration; no Lightning, and torch only to check a class."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import lit_dqn
from lit_dqn.config.build import PLUGGABLE, check_group
from lit_dqn.config.devices import check_devices
from lit_dqn.config.overrides import checkpoint_in, is_hydras, parse, values_of
from lit_dqn.config.planned import refuse_planned
from lit_dqn.config.problems import did_you_mean
from lit_dqn.config.schema import check_central
from lit_dqn.config.words import shown
from lit_dqn.errors import UserError

FREE_MAPPINGS = ("env.kwargs",)  # below these any key may be typed, with +
OPTIONAL = ("experiment", "tuned")  # groups that may be left out: tuned=none
LONGEST_NAME = 120  # characters of a folder's name that come from overrides
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
    """Overrides as a folder's name: letters, digits, `.`, `_` and `-` alone, at most `LONGEST_NAME`."""
    text = text.replace(",", "_")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)
    return name[:LONGEST_NAME] or "default"


class Composer:
    """Composes from conf/ and, before it in the search path, the user's own folder.

    Args:
        config_dir: Hydra's `--config-dir`.
        config_name: Hydra's `--config-name`.
    """

    def __init__(self, config_dir: str | None = None, config_name: str | None = None) -> None:
        if config_dir is not None and not Path(config_dir).is_dir():
            raise UserError(f"--config-dir {config_dir}: there is no such folder.")
        own = [] if config_dir is None else [Path(config_dir).resolve()]
        self.roots = [*own, conf_dir()]
        self.config_name = config_name or "config"
        self._stored: dict[Path, Any] = {}  # what a command line's checkpoints hold, read once
        self._chosen: dict[tuple[Any, ...], DictConfig] = {}  # what choices of files compose to

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
        config = self._compose(self.hydra_words(parsed))
        self._drop_recipes(config, parsed)
        if path := checkpoint_in(parsed):
            from lit_dqn.config.stored import merge_checkpoint

            config = merge_checkpoint(config, self._read(path), parsed, set(self.options()))
        check(config)
        return config

    def _drop_recipes(self, config: DictConfig, parsed: Sequence[Override]) -> None:
        """A group chosen by the user is taken as it is, without a recipe's values for another choice.

        Of a buffer the values that both have are kept: sizes and n_step hold for every buffer.
        """
        chosen = {o.key_or_group for o in parsed if o.key_or_group in self.options() and o.package is None}
        if "tuned" not in chosen and chosen - {*UNTUNED}:
            untuned = self._compose([*self.hydra_words(parsed), "tuned=none"])
            for group in chosen - {*UNTUNED}:
                kept = (
                    {k: v for k, v in config[group].items() if k != "_target_"} if group == "buffer" else {}
                )
                config[group] = {k: kept.get(k, v) for k, v in untuned[group].items()}

    def hydra_words(self, parsed: Sequence[Override]) -> list[str]:
        """The words for Hydra; a key that only the checkpoint has is added to what Hydra composes."""
        force = checkpoint_in(parsed) is not None
        groups = self.options()
        return [
            f"++{o.input_line}"
            if force and o.type is OverrideType.CHANGE and not (is_hydras(o) or o.key_or_group in groups)
            else str(o.input_line)
            for o in parsed
        ]

    def folder(self, key: str, parsed: Sequence[Override]) -> Path | None:
        """The folder typed as `hydra.run.dir` or `hydra.sweep.dir`, its interpolations resolved."""
        if not any(o.key_or_group == key for o in parsed):
            return None
        config = self._compose(self.hydra_words(parsed), with_hydra=True)
        return Path(OmegaConf.select(config, key))

    def check_names(self, parsed: Sequence[Override]) -> None:
        """Refuse unknown groups, options and keys, and names of later versions; imports no torch.

        (But for a command line that names a checkpoint, whose keys count then.)

        Raises:
            UserError: names the nearest valid one.
        """
        groups = self.options()
        choices = [o for o in parsed if o.key_or_group in groups]
        for override in choices:
            self._check_choice(override, groups[override.key_or_group])
        values = [o for o in parsed if o.key_or_group not in groups]
        for override in values:
            for value in values_of(override):
                refuse_planned(override.key_or_group, value)
        first = [
            f"{o.key_or_group}={shown(values_of(o)[0])}" if o.is_sweep_override() else str(o.input_line)
            for o in choices
        ]
        keys = self._known_keys(parsed, first)
        for override in values:
            self._check_key(override, [*keys, *groups])

    def _known_keys(self, parsed: Sequence[Override], choices: list[str]) -> list[str]:
        keys = list(flat_keys(self._compose(choices, with_hydra=any(map(is_hydras, parsed)))))
        path = checkpoint_in(parsed)
        return keys if path is None else [*keys, *flat_keys(OmegaConf.create(self._read(path).config))]

    def _read(self, path: Path) -> Any:
        from lit_dqn.config.stored import Stored  # imports torch

        if path not in self._stored:
            self._stored[path] = Stored.read(path)
        return self._stored[path]

    @staticmethod
    def _check_choice(override: Override, known: list[str]) -> None:
        group = override.key_or_group
        if override.type is OverrideType.DEL:
            raise UserError(f"~{group}: {group} cannot be removed; known are {', '.join(known)}.")
        for value in map(shown, values_of(override)):
            refuse_planned(group, value)
            if value not in known and not (value == "none" and group in OPTIONAL):
                raise UserError(
                    f"{group}={value} is unknown{did_you_mean(value, known)} Known: {', '.join(known)}."
                )

    def _check_key(self, override: Override, known: list[str]) -> None:
        key = override.key_or_group
        if key in ("hydra/launcher", "hydra/sweeper") and override.value() != "basic":
            raise UserError(f"{override.input_line}: jobs run one after another; type {key}=basic.")
        if key.startswith("hydra/") or (is_hydras(override) and override.type is not OverrideType.CHANGE):
            return  # Hydra's own affair
        if any(key == free or key.startswith(free + ".") for free in FREE_MAPPINGS):
            return
        if key not in known:
            raise UserError(f"unknown option {key}{did_you_mean(key, known)}")
        if override.type is OverrideType.DEL:
            raise UserError(f"~{key}: options cannot be removed; give {key} a value.")

    def options(self) -> dict[str, list[str]]:
        """{group: choices} of conf/ and the user's folder, without names that begin with `_`."""
        found: dict[str, set[str]] = {}
        for root in self.roots:
            for file in root.glob("*/*.yaml"):
                if not file.stem.startswith("_"):
                    found.setdefault(file.parent.name, set()).add(file.stem)
        return {group: sorted(names) for group, names in sorted(found.items()) if group != "hydra"}

    def _compose(self, overrides: list[str], with_hydra: bool = False) -> DictConfig:
        """What Hydra makes of the words; the choice of files, which takes most of its time, once for all."""
        groups = self.options()
        words: list[str] = []
        values: list[Override] = []
        for override in parse(overrides):
            if with_hydra or is_hydras(override) or override.key_or_group in groups:
                words.append(str(override.input_line))
            else:
                values.append(override)
        files = (with_hydra, *words)
        if files not in self._chosen:
            self._chosen[files] = self._composed(words, with_hydra)
        config = copy.deepcopy(self._chosen[files])
        with _hydras_errors():
            ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return config

    def _composed(self, overrides: list[str], with_hydra: bool) -> DictConfig:
        with _own_hydra(self.roots), _hydras_errors():
            return hydra_compose(self.config_name, overrides=overrides, return_hydra_config=with_hydra)


@contextmanager
def _hydras_errors() -> Iterator[None]:
    """Hydra's and OmegaConf's errors in a line or two."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        texts = [str(e) for e in (error, error.__cause__) if e]
        lines = [line for text in texts for line in text.split("\n") if line.strip()]
        raise UserError(" ".join(line for line in lines[:2] if not line.endswith(":"))) from error


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The checked configuration for these command-line words, e.g. `["env=cartpole", "seed=1"]`.

    Raises:
        UserError: one or two sentences that say what to type.
    """
    return Composer().compose(overrides)


@contextmanager
def _own_hydra(roots: Sequence[Path]) -> Iterator[None]:
    """Compose also inside a running Hydra application, and leave that one as it was."""
    register_resolvers()
    outer = copy.copy(GlobalHydra.instance().hydra)
    GlobalHydra.instance().clear()
    version.setbase("1.3")
    search_path = create_config_search_path(str(roots[-1]))
    for root in reversed(roots[:-1]):
        search_path.prepend("user", f"file://{root}")
    try:
        Hydra.create_main_hydra2(task_name="lit_dqn", config_search_path=search_path)
        yield
    finally:
        GlobalHydra.instance().clear()
        if outer is not None:
            GlobalHydra.instance().initialize(outer)


def flat_keys(config: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted key, inner ones too."""
    values: Any = OmegaConf.to_container(config) if isinstance(config, DictConfig) else config
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flat_keys(value, f"{prefix}{key}.")


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain containers, interpolations resolved.

    Raises:
        UserError: a mandatory value is missing, or an interpolation cannot be resolved.
    """
    try:
        missing = OmegaConf.missing_keys(config)
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).splitlines()[0]}.") from error
    if missing:
        key = min(missing)
        raise UserError(f"{key} is missing: type {key}=VALUE.")
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
