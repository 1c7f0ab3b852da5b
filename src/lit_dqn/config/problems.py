"""Turns what is wrong with an option into one sentence: the key, the requirement, the value, the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from lit_dqn.errors import UserError

REQUIREMENTS = {
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "literal_error": "one of {expected}",
    "too_short": "a list of at least {min_length}",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one; a dotted key is also tried by its last part."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return close[0]
    last_parts: dict[str, str] = {}
    for key in known:
        last_parts.setdefault(key.rpartition(".")[2], key)
    close = difflib.get_close_matches(name.rpartition(".")[2], last_parts, n=1, cutoff=0.7)
    return last_parts[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or a full stop."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else "."


def shown(value: Any) -> str:
    """A value as it would be typed."""
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value)) if _plain(value) else str(value)
    )


def _plain(value: Any) -> bool:
    return isinstance(value, bool) or value is None


def user_error(prefix: str, error: ValidationError, known: Iterable[str] = ()) -> UserError:
    """The first problem of a pydantic check as a sentence.

    Args:
        prefix: the config group, `""` for root values.
        known: valid names inside the group, for the nearest one.
    """
    problems = error.errors()
    # A union reports each branch; the branch that names the requirement says most.
    problem = next((p for p in problems if p["type"] != "none_required"), problems[0])
    names = [str(part) for part in problem["loc"] if not _is_union_branch(part)]
    key = ".".join([prefix, *names] if prefix else names)
    value = shown(problem["input"])
    if problem["type"] == "extra_forbidden":
        return UserError(f"unknown option {key}{did_you_mean(key, (f'{prefix}.{k}' for k in known))}")
    if problem["type"] == "missing":
        return UserError(f"{key} is missing.")
    requirement = REQUIREMENTS.get(problem["type"])
    if requirement is None:
        return UserError(f"{key}={value}: {problem['msg'].removeprefix('Value error, ')}.")
    sentence = f"{key} must be {requirement.format(**problem.get('ctx', {}))}, got {value}"
    choices = [
        c.strip(" '") for c in str(problem.get("ctx", {}).get("expected", "")).replace(" or ", ",").split(",")
    ]
    return UserError(sentence + did_you_mean(str(problem["input"]), filter(None, choices)))


def _is_union_branch(part: int | str) -> bool:
    return isinstance(part, str) and (part in {"int", "float", "str", "bool"} or "[" in part or "(" in part)
