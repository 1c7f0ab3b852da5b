"""The words of a command line, as Hydra reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from lit_dqn.errors import UserError

CHECKPOINTS = ("resume", "ckpt")  # a file named here brings its own configuration
HOW_TO_TYPE = "Options are typed as key=value; a value with = or , in it as 'key=\"...\"'."


def parse(overrides: Sequence[str]) -> list[Override]:
    """Hydra's reading of the words.

    Raises:
        UserError: a word is no override.
    """
    try:
        parsed = list(OverridesParser.create().parse_overrides(list(overrides)))
    except HydraException as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{reason}. {HOW_TO_TYPE}") from error
    for override in parsed:
        if not override.key_or_group:
            raise UserError(f"{override.input_line} names no option. {HOW_TO_TYPE}")
    return parsed


def values_of(override: Override) -> list[Any]:
    """The value of an override, or the values of a sweep over choices."""
    if override.is_choice_sweep() or override.is_range_sweep():
        return [v.strip("'\"") for v in override.sweep_string_iterator()]
    return [override.value()]


def is_hydras(override: Override) -> bool:
    """Whether it sets something of Hydra's own."""
    return override.key_or_group.partition(".")[0] == "hydra"


def checkpoint_in(parsed: Sequence[Override]) -> Path | None:
    """The (first) checkpoint that a command line names in `resume` or `ckpt`."""
    for override in parsed:
        value = values_of(override)[0]
        if override.key_or_group in CHECKPOINTS and value not in (None, "", "auto"):
            return Path(str(value))
    return None
