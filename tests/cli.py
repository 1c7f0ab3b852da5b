"""One command line in this process, as `python -m lit_dqn` would answer it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lit_dqn.__main__ import report
from lit_dqn.cli import application
from lit_dqn.errors import RunError, UserError


@dataclass
class Answer:
    code: int
    out: str
    err: str


class CommandLine:
    """Call it with words; it runs in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        try:
            code = application(words)
        except (UserError, RunError) as error:
            code = report(error)
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)

    def files(self) -> list[str]:
        """Everything below the folder, relative."""
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))
