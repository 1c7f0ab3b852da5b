"""Schedules: pure functions of the env step, so that a resumed or a longer run continues the same curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import validate_call

Schedule = Callable[[int], float]
Probability = Annotated[float, Ge(0), Le(1)]


class Linear:
    """From `start` to `end` over `duration` env steps, then `end` for ever.

    Args:
        duration: env steps; 0 means `end` from the first step on.
    """

    def __init__(self, start: float, end: float, duration: int) -> None:
        self.start, self.end, self.duration = start, end, duration

    def __call__(self, env_step: int) -> float:
        if env_step >= self.duration:
            return self.end
        return self.start + (self.end - self.start) * env_step / self.duration


class LinearEpsilon(Linear):
    """Epsilon falls linearly: Mnih et al. (2015), doi:10.1038/nature14236, Methods.

    Args:
        start: epsilon at env step 0, in [0, 1].
        end: epsilon after `decay_env_steps`, in [0, 1].
        decay_env_steps: env steps from `start` to `end`, >= 0.
    """

    @validate_call
    def __init__(
        self,
        *,
        start: Probability = 1.0,
        end: Probability = 0.05,
        decay_env_steps: Annotated[int, Ge(0)] = 10_000,
    ) -> None:
        super().__init__(start, end, decay_env_steps)


class ConstantEpsilon:
    """The same epsilon throughout, in [0, 1]."""

    @validate_call
    def __init__(self, *, epsilon: Probability = 0.05) -> None:
        self.epsilon = epsilon

    def __call__(self, env_step: int) -> float:
        return self.epsilon


def rounds_in(total_env_steps: int, learning_starts: int, steps_per_round: int) -> int:
    """Rounds until the budget is reached: ceil((total - learning_starts) / steps_per_round), at least 0."""
    return max(0, -(-(total_env_steps - learning_starts) // steps_per_round))
