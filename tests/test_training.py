"""One run, end to end, in this process."""

from __future__ import annotations

import csv
import json


def test_a_run_writes_the_files_of_the_contract(tiny_run, tmp_path):
    result = tiny_run("env=cartpole")
    run = tmp_path / "run"
    assert json.loads((run / "result.json").read_text()) == result
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt", "replay"}
    assert list((run / "tensorboard").glob("events.*"))
    rows = list(csv.DictReader((run / "metrics.csv").read_text().splitlines()))
    assert next(iter(rows[0])) == "env_step"
    assert int(rows[-1]["env_step"]) == result["env_steps"] >= 400
