"""The three ways a run ends early. Each knows the process's exit code."""

from __future__ import annotations


class UserError(Exception):
    """What the user typed or gave cannot work; the message says what to type. Nothing was written."""

    exit_code = 2


class RunError(Exception):
    """The run failed while it ran: an env that raises or returns NaN, a full disk, a diverged loss."""

    exit_code = 1


class Interrupted(BaseException):
    """A SIGINT or SIGTERM asked the run to stop; passes through `except Exception` on purpose."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.exit_code = 128 + signum
