"""Real processes at the price of a fork: imports once, then forks a child for each job that stdin names.

A job is a line of JSON: `words` for the command line, or `config` and `folder` for `train`; `output`, a file
for what it prints; `at`, where it sends itself signals. The answer is a line with its exit status.
Nothing here may use torch before the fork.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def owner_of(place: str) -> tuple[Any, str]:
    """`module:name` or `module:Class.method` -> the object that has it, and its name there."""
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def arm(place: str, when: str, nth: int, signals: list[str]) -> None:
    """Send this process signals before or after the n-th call of `place`.

    `outer > inner` counts the calls of `inner` while `outer` runs.
    """
    outer, _, inner = place.rpartition(" > ")
    inside, calls = not outer, 0

    def counted(original: Any) -> Any:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += inside
            now = inside and calls == nth
            if when == "before" and now:
                send(signals)
            value = original(*args, **kwargs)
            if when == "after" and now:
                send(signals)
            return value

        return replacement

    def opening(original: Any) -> Any:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            inside = True
            try:
                return original(*args, **kwargs)
            finally:
                inside = False

        return replacement

    for where, wrap in ((inner, counted), (outer, opening)):
        if where:
            owner, name = owner_of(where)
            setattr(owner, name, wrap(getattr(owner, name)))


def send(signals: list[str]) -> None:
    for name in signals:
        os.kill(os.getpid(), getattr(signal, name))


def child(job: dict[str, Any]) -> None:
    """Does the job and ends the process as the command line does."""
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(Path(job["output"]).parent)
    if job.get("at"):
        arm(*job["at"])
    if "words" in job:
        from lit_dqn.__main__ import main

        sys.argv = ["lit-dqn", *job["words"]]
        main()
    else:
        from omegaconf import OmegaConf

        from lit_dqn import train
        from lit_dqn.errors import Interrupted

        try:
            train(OmegaConf.create(job["config"]), job["folder"])
        except Interrupted as stop:
            sys.exit(stop.exit_code)
    sys.exit(0)


def serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import torch.utils.tensorboard  # noqa: F401

    import lit_dqn.cli
    import lit_dqn.modes
    import lit_dqn.report  # noqa: F401
    import runs  # noqa: F401  (registers envs)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                child(job)
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(end.code or 0))
            except BaseException:
                import traceback

                traceback.print_exc()
                sys.stderr.flush()
                os._exit(70)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, file=answers, flush=True)


class ForkServer:
    """The other end: `run(...)` gives the exit status, negative for a signal."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, **job: Any) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


if __name__ == "__main__":
    serve()
