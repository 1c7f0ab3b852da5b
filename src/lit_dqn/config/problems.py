"""Turns what is wrong with an option into one sentence: the key, the requirement, the value, the nearest."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lit_dqn.config.words import shown
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
    "literal_error": "{expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
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


def user_error(prefix: str, error: ValidationError, known: Iterable[str] = ()) -> UserError:
    """The first problem of a pydantic check as a sentence.

    Args:
        prefix: the config group, `""` for root values.
        known: valid names inside the group, for the nearest one.
    """
    problems = error.errors()
    first = problems[0]
    names = _names(first)
    key = ".".join([prefix, *names] if prefix else names)
    value = shown(first["input"])
    if first["type"] == "extra_forbidden":
        return UserError(f"unknown option {key}{did_you_mean(key, (f'{prefix}.{k}' for k in known))}")
    if first["type"] == "missing":
        return UserError(f"{key} is missing.")
    # A union reports a problem for each of its branches: any of them would do.
    branches = [p for p in problems if _names(p) == names]
    requirements = [_requirement(p) for p in branches]
    if None in requirements:
        said = next(p for p in branches if p["type"] not in REQUIREMENTS)
        return UserError(f"{key}={value}: {said['msg'].removeprefix('Value error, ')}.")
    sentence = f"{key} must be {' or '.join(filter(None, requirements))}, got {value}"
    choices = [choice for p in branches for choice in re.findall(r"'([^']*)'", p["ctx"].get("expected", ""))]
    return UserError(sentence + did_you_mean(str(first["input"]), choices))


def _names(problem: ErrorDetails) -> list[str]:
    """Where the problem is, as dotted parts, without the names of union branches."""
    return [str(part) for part in problem["loc"] if not _is_union_branch(part)]


def _requirement(problem: ErrorDetails) -> str | None:
    problem.setdefault("ctx", {})
    requirement = REQUIREMENTS.get(problem["type"])
    return requirement and requirement.format(**problem["ctx"])


def _is_union_branch(part: int | str) -> bool:
    return isinstance(part, str) and (part in {"int", "float", "str", "bool"} or "[" in part or "(" in part)
