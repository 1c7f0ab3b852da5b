"""Pluggable classes: found by `_target_`, checked against their typed constructor, built from values.

A constructor's keyword-only parameters are its options: names, types and ranges are stated there and
nowhere else; `**options` stands for those of its base class. Its other parameters are objects that the
program hands in.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from lit_dqn.config.problems import user_error
from lit_dqn.errors import UserError

PLUGGABLE = {
    "env": "lit_dqn.envs",
    "agent": "lit_dqn.agents",
    "network": "lit_dqn.networks",
    "buffer": "lit_dqn.replay",
    "exploration": "lit_dqn.schedules",
    "optimizer": "lit_dqn.optimizers",
}


def is_ours(group: str, target: Any) -> bool:
    """Whether a `_target_` names something inside the group's own package."""
    return isinstance(target, str) and target.startswith(PLUGGABLE[group] + ".")


def find_class(group: str, target: str) -> type:
    """The class behind a `_target_`; nothing but classes defined in the module it names.

    Raises:
        UserError: there is no such class.
    """
    module, _, name = target.rpartition(".")
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:  # whatever a user's own module does when it is imported
        raise UserError(
            f"{group}._target_={target} cannot be imported: {type(error).__name__}: {error}."
        ) from error
    if not (isinstance(found, type) and found.__module__ == module):
        raise UserError(f"{group}._target_={target}: {module} defines no class {name!r}.")
    return found


def check_group(group: str, node: Mapping[str, Any]) -> None:
    """Check a pluggable group's values against the constructor's options.

    A class that needs no other objects is built once, too: what only its constructor can tell (an env's
    spaces, say) is told here.

    Raises:
        UserError: an unknown name, a wrong type or a value out of range.
    """
    cls = find_class(group, node["_target_"])
    options = _options(cls)
    fields: dict[str, Any] = {
        name: (hint, ... if default is inspect.Parameter.empty else default)
        for name, (hint, default) in options.items()
    }
    rules = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    try:
        create_model("schema", __config__=rules, **fields).model_validate(_values(node))
    except ValidationError as error:
        raise user_error(group, error, options) from error
    if not _needs_objects(cls):
        build(group, node, trusted=True)


def _values(node: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in node.items() if k != "_target_"}


def _parameters(cls: type) -> list[inspect.Parameter]:
    return list(inspect.signature(inspect.unwrap(cls.__init__)).parameters.values())[1:]  # type: ignore[misc]


def _needs_objects(cls: type) -> bool:
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in _parameters(cls))


def objects_taken(cls: type) -> int | None:
    """How many objects the constructor takes beside its options; None: any number.

    A constructor that passes `*objects` on takes as many as that of its base class.
    """
    if cls is object:
        return None
    kinds = [parameter.kind for parameter in _parameters(cls)]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return objects_taken(cls.__mro__[1])
    return sum(
        kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
    )


def _options(cls: type) -> dict[str, tuple[Any, Any]]:
    """{option: (type, default)} of a class: its constructor's keyword-only parameters.

    A constructor that passes `**options` on takes those of its base class, too.
    """
    if cls is object:
        return {}
    hints = get_type_hints(inspect.unwrap(cls.__init__), include_extras=True)  # type: ignore[misc]
    parameters = _parameters(cls)
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    inherited = _options(cls.__mro__[1]) if passes_on else {}
    return inherited | {
        parameter.name: (hints.get(parameter.name, Any), parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def build(group: str, node: Mapping[str, Any], *objects: Any, trusted: bool = False) -> Any:
    """An instance of the group's class.

    Args:
        node: `_target_` and the options.
        objects: the constructor's other arguments; those it has no place for are left out.
        trusted: classes outside lit_dqn may be built too: the user's own configuration names them.

    Raises:
        UserError: see `find_class`; a foreign class that is not trusted; values the constructor refuses.
    """
    target = node["_target_"]
    if not (trusted or is_ours(group, target)):
        raise UserError(f"{group}._target_={target} lies outside lit_dqn and is not built from a file.")
    cls = find_class(group, target)
    try:
        return cls(*objects[: objects_taken(cls)], **_values(node))
    except ValueError as error:
        raise UserError(f"{group}: {error}") from error
