"""Sweeps: a named folder per job, failures kept apart, interruptions told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli import CommandLine
from conftest import TINY, command
from lit_dqn.errors import Interrupted


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return CommandLine(tmp_path, capsys)


def jobs(folder: Path) -> list[Path]:
    """The job folders of the one sweep below a folder, in order."""
    (sweep,) = (folder / "outputs").glob("*/*")
    return sorted((p for p in sweep.iterdir() if p.is_dir()), key=lambda p: int(p.name.split("-")[0]))


def test_each_job_has_a_folder_named_after_its_overrides_below_one_sweep(cli):
    answer = cli("-m", *TINY, "seed=0,1", "agent.double=true,false")
    assert answer.code == 0, answer.err
    folders = jobs(cli.folder)
    assert len(folders) == 4
    for number, folder in enumerate(folders):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", folder.name)
        seed, double = number // 2, number % 2 == 0
        result = json.loads((folder / "result.json").read_text())
        assert result["seed"] == seed
        text = (folder / ".hydra" / "config.yaml").read_text()
        assert f"double: {str(double).lower()}" in text
        assert list((folder / "tensorboard").glob("events.*"))  # what --logdir outputs finds
    assert [row.count("done") for row in answer.out.splitlines() if "seed=" in row] == [1, 1, 1, 1]


def test_a_long_folder_name_says_what_tells_the_jobs_apart(cli):
    answer = cli("-m", *TINY, "env=gym", "env.id=trap_envs:Trap/Chain-v0", "seed=1,2")
    assert answer.code == 0, answer.err
    assert [folder.name for folder in jobs(cli.folder)] == ["0-seed-1", "1-seed-2"]


def test_a_sweep_into_the_folder_of_another_is_refused_before_anything_is_written(cli):
    words = ["-m", *TINY, "env=gym", "env.id=trap_envs:Trap/Chain-v0", "seed=0,1", "hydra.sweep.dir=mine"]
    assert cli(*words).code == 0
    before = {path: path.stat().st_mtime_ns for path in (cli.folder / "mine").rglob("*")}
    answer = cli(*words)
    assert answer.code == 2
    assert "hydra.sweep.dir=mine holds a sweep already" in answer.err
    assert {path: path.stat().st_mtime_ns for path in (cli.folder / "mine").rglob("*")} == before


def test_a_job_that_fails_leaves_its_traceback_in_its_log_and_the_others_finish(cli):
    ids = "trap_envs:Trap/RaiseInStep-v0,trap_envs:Trap/Chain-v0,trap_envs:Trap/NanReward-v0"
    answer = cli("-m", *TINY, "env=gym", f"env.id={ids}")
    assert answer.code not in (0, 2)
    raising, good, nan = jobs(cli.folder)
    assert "Traceback" in (raising / "train.log").read_text()
    assert "planned failure in step" in (raising / "train.log").read_text()
    assert json.loads((good / "result.json").read_text())["finished"]
    assert "NaN" in (nan / "train.log").read_text()
    rows = [line for line in answer.out.splitlines() if "env.id=" in line]
    for row, words in zip(rows, ["failed planned failure", "done", "failed NaN"], strict=True):
        assert all(part in row for part in words.split(" ", 1))


def test_an_interrupted_sweep_names_the_jobs_that_were_not_run(cli, monkeypatch):
    import lit_dqn.modes

    def interrupt(config, folder):
        if config.seed == 1:
            raise Interrupted(2)
        return "trained"

    monkeypatch.setattr(lit_dqn.modes, "run_mode", interrupt)
    answer = cli("-m", *TINY, "seed=0,1,2")
    assert answer.code == 130
    rows = [line for line in answer.out.splitlines() if "seed=" in line]
    for row, (seed, state) in zip(rows, [(0, "done"), (1, "interrupted"), (2, "not run")], strict=True):
        assert f"seed={seed}" in row
        assert state in row
    assert "nothing to resume" in answer.err


def test_jobs_do_not_inherit_anything_from_the_job_before(cli):
    assert cli("-m", *TINY, "seed=0,0").code == 0
    first, second = jobs(cli.folder)
    times = ("wall_seconds", "env_steps_per_second", "updates_per_second", "peak_memory_mb")
    one, two = (json.loads((f / "result.json").read_text()) for f in (first, second))
    assert {k: v for k, v in one.items() if k not in times} == {
        k: v for k, v in two.items() if k not in times
    }


def test_a_sweep_over_checkpoints_evaluates_each(cli):
    assert cli("-m", *TINY, "seed=0,1").code == 0
    paths = ",".join(str(f.relative_to(cli.folder) / "checkpoints" / "best.ckpt") for f in jobs(cli.folder))
    answer = cli("-m", "mode=eval", f"ckpt={paths}", "hydra.sweep.dir=evaluated", "evaluation.episodes=3")
    assert answer.code == 0, answer.err
    results = [json.loads(p.read_text()) for p in (cli.folder / "evaluated").glob("*/result.json")]
    assert sorted(r["seed"] for r in results) == [0, 1]
    assert [r["eval_episodes"] for r in results] == [3, 3]


def test_two_sweeps_started_together_share_no_folder(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    words = ["-m", *TINY, "evaluation.episodes=0", "seed=0,1"]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: command(*words, cwd=tmp_path, timeout=280), range(2)))
    assert [d.returncode for d in done] == [0, 0], done[0].stderr
    sweeps = [p for p in (tmp_path / "outputs").glob("*/*") if p.is_dir()]
    assert len(sweeps) == 2
    for sweep in sweeps:
        assert len(list(sweep.glob("*/result.json"))) == 2
