"""The wheel stands alone: built, installed elsewhere, run from another folder with its own conf/."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import TINY, command

ROOT = Path(__file__).parents[1]


def pip(*words: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(folder), str(ROOT), cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_carries_every_yaml_and_declares_the_console_script(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    yamls = {f"lit_dqn/{p.relative_to(ROOT)}" for p in (ROOT / "conf").rglob("*.yaml")}
    assert yamls <= set(names)
    (entry,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "lit-dqn = lit_dqn.__main__:main" in zipfile.ZipFile(wheel).read(entry).decode()
    assert not [name for name in names if name.startswith(("tests", "outputs"))]


def test_the_installed_wheel_runs_from_another_folder(wheel, tmp_path):
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    pip("install", "--no-deps", "--no-index", "--target", str(site), str(wheel), cwd=here)
    # A choice that only this installation has shows whose conf/ is used.
    (site / "lit_dqn" / "conf" / "experiment" / "installed.yaml").write_text(
        "# @package _global_\nseed: 77\n"
    )
    done = command(*TINY, "experiment=installed", cwd=here, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    (result,) = (here / "outputs").glob("*/*/result.json")
    assert '"seed": 77' in result.read_text()
