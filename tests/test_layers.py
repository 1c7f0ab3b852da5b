"""A module imports only from the layers below its own, or beside it in the same folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lit_dqn

PACKAGE = Path(lit_dqn.__file__).parent
LAYERS = [
    {
        "types",
        "schedules",
        "seeding",
        "errors",
        "files",
        "folder",
        "global_generators",
        "run_log",
        "allocator",
    },
    {"envs", "networks", "replay", "config", "optimizers", "checkpoint_file", "recorded", "fused_adam"},
    {"agents", "experience", "learner"},
    {"module", "data"},
    {"evaluation", "checkpointing", "callbacks", "policy"},
    {"training", "preflight", "modes", "report", "cli", "__main__"},
]
NO_LIGHTNING = {*LAYERS[0], *LAYERS[1], *LAYERS[2], "evaluation", "policy", "preflight", "report", "cli"}
ORDER = {name: number for number, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part(path: Path) -> str:
    """The top-level module or package a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, everywhere: bool = True) -> set[str]:
    """Dotted names of what a file imports; without `everywhere`, only at the top of the module."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
    return names


def test_every_module_has_a_layer():
    assert {part(path) for path in MODULES} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_from_its_layer_or_below(path):
    own = part(path)
    for name in imported(path):
        if name.startswith("lit_dqn."):
            other = name.split(".")[1]
            # `config` reads a checkpoint's configuration when a command line names one; `cli` starts `modes`.
            assert ORDER[other] <= ORDER[own], f"{own} imports {other}"


def test_the_modules_of_one_layer_import_each_other_without_a_cycle():
    edges = {
        own: {
            name.split(".")[1]
            for path in MODULES
            if part(path) == own
            for name in imported(path)
            if name.startswith("lit_dqn.")
        }
        - {own}
        for own in ORDER
    }
    left = dict(edges)
    while free := [own for own, others in left.items() if not others & left.keys()]:
        for own in free:
            del left[own]
    assert left == {}


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) in NO_LIGHTNING], ids=lambda p: p.name)
def test_what_checks_a_command_line_does_not_import_lightning(path):
    assert not any(name.startswith(("pytorch_lightning", "lightning")) for name in imported(path))


def test_the_learner_does_not_know_where_its_data_comes_from():
    for name in ("module", "learner"):
        others = {name.split(".")[1] for name in imported(PACKAGE / f"{name}.py") if name.count(".")}
        assert not others & {"data", "replay", "experience", "envs", "evaluation"}


def test_only_the_top_layer_and_config_see_a_dictconfig():
    for path in MODULES:
        if ORDER[part(path)] < 5 and part(path) != "config":
            assert not any(name.startswith(("omegaconf", "hydra")) for name in imported(path)), path
