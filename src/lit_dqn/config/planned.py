"""Names that later versions will have; until then they are refused by name."""

from __future__ import annotations

from lit_dqn.config.words import shown
from lit_dqn.errors import UserError

PLANNED_KEYS = frozenset(
    {
        "env.game",
        "experience.overlap",
        "trainer.profile",
    }
)
PLANNED_VALUES = frozenset(
    {
        *(f"env={name}" for name in ("minatar", "atari", "pong", "breakout")),
        "mode=doctor",
    }
)


def refuse_planned(key: str, value: object) -> None:
    """Refuse a name of a later version.

    Raises:
        UserError: always names the key and the value.
    """
    word = f"{key}={shown(value)}"
    if key in PLANNED_KEYS or word in PLANNED_VALUES:
        raise UserError(f"{word} is not available in this version of lit_dqn.")
