"""The command line: `python -m lit_dqn [overrides]`, also installed as `lit-dqn`.

Hydra makes the run folder before it calls us, so everything is composed and checked first; only what is
right is handed to Hydra.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType

from lit_dqn.errors import Interrupted, RunError, UserError


def main() -> None:
    """Entry point; ends the process with the exit code of the contract."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # until the fit takes them over
        signal.signal(signum, stop)
    try:
        code = run(sys.argv[1:])
    except (UserError, RunError) as error:
        code = report(error)
    except Interrupted as interrupted:
        print("\nstopped before the first round: there is nothing to resume.", file=sys.stderr)
        code = interrupted.exit_code
    except BrokenPipeError:  # the reader of our output went away: `lit-dqn --help | head`
        sys.stderr.close()
        code = 141
    sys.exit(code)


def stop(signum: int, frame: FrameType | None) -> None:
    """Stop here.

    Raises:
        Interrupted: always.
    """
    raise Interrupted(signum)


def report(error: UserError | RunError) -> int:
    """Say what went wrong in a line or two; the traceback on request."""
    if os.environ.get("HYDRA_FULL_ERROR", "0") not in ("", "0"):
        traceback.print_exc()
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def run(words: list[str]) -> int:
    """Check the command line, then run it; returns the exit code."""
    from lit_dqn.cli import application

    return application(words)


if __name__ == "__main__":
    main()
