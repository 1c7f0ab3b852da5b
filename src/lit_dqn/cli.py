"""From the words of the command line to runs: help, checks of every job, Hydra, exit codes."""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from lit_dqn.config.compose import Composer, conf_dir, parse, register_resolvers
from lit_dqn.config.stored import nothing_left
from lit_dqn.envs.gym import GymEnvs
from lit_dqn.errors import Interrupted, RunError, UserError
from lit_dqn.folder import RunFolder, folder_of

EXAMPLES = (
    "python -m lit_dqn env=cartpole",
    "python -m lit_dqn env=gym env.id=FrozenLake-v1 total_env_steps=20000",
    "python -m lit_dqn -m seed=0,1,2 agent.double=true,false",
    "python -m lit_dqn resume=outputs/DATE/TIME/checkpoints/last.ckpt total_env_steps=100000",
    "python -m lit_dqn mode=eval ckpt=outputs/DATE/TIME/checkpoints/best.ckpt evaluation.episodes=100",
)


@dataclass
class Outcome:
    """How one job ended."""

    name: str
    words: list[str]
    state: str = "not run"
    note: str = ""
    exit_code: int = 0


@dataclass
class Application:
    """One call of the command line."""

    composer: Composer
    multirun: bool
    outcomes: list[Outcome] = field(default_factory=list)
    started: int = 0

    def job(self, _: DictConfig) -> None:
        """What Hydra calls once per job, with the job's folder made; keeps failures to itself.

        An exception that reached Hydra would be shown after the whole sweep; sys.exit would end it.
        """
        from lit_dqn.modes import run_mode  # imports Lightning

        outcome = self.outcomes[self.started]
        self.started += 1
        runtime = HydraConfig.get().runtime
        folder = RunFolder(Path(runtime.output_dir))
        try:
            config = self.composer.compose(outcome.words)
            OmegaConf.save(config, folder.path / ".hydra" / "config.yaml")
            outcome.note = run_mode(config, folder)
            outcome.state = "done"
        except Interrupted as stop:
            outcome.state, outcome.exit_code = "interrupted", stop.exit_code
            print(self._how_to_resume(folder), file=sys.stderr)
            raise
        except (UserError, RunError) as error:
            outcome.state, outcome.note, outcome.exit_code = "failed", str(error), error.exit_code
            print(f"error: {error}", file=sys.stderr)
        except Exception as error:  # an env's own failure, or a bug: its traceback is in train.log
            outcome.state, outcome.note = "failed", f"{type(error).__name__}: {error}"
            outcome.exit_code = 1
            print(f"The traceback is in {folder.log}.\nerror: {outcome.note}", file=sys.stderr)

    @staticmethod
    def _how_to_resume(folder: RunFolder) -> str:
        if not folder.last.is_file():
            return "\nstopped before the first round: there is nothing to resume."
        path = shlex.quote(str(shown_path(folder.last)))
        return f"\nstopped; to go on type\n  python -m lit_dqn resume={path}"

    def finish(self) -> int:
        """Show a sweep's table; the exit code of the whole."""
        if self.multirun:
            from lit_dqn.report import print_sweep

            print_sweep([(o.name, o.state, o.note) for o in self.outcomes])
            return 1 if any(o.exit_code for o in self.outcomes) else 0
        return max((o.exit_code for o in self.outcomes), default=0)


def application(words: Sequence[str]) -> int:
    """Check the words, then run them; returns the exit code.

    Raises:
        UserError: nothing was written.
        Interrupted: a signal stopped the run.
    """
    parser = get_args_parser()
    args = parser.parse_args(list(words))
    register_resolvers()
    composer = Composer(args.config_dir, args.config_name)
    if args.help:
        print(help_text(composer))
        return 0
    if args.hydra_help or args.info or args.shell_completion:
        hydra.main(config_path=str(conf_dir()), config_name=composer.config_name, version_base="1.3")(
            _nothing
        )()
        return 0
    overrides = list(args.overrides)
    if args.cfg:
        composer.compose(overrides)
        hydra.main(config_path=str(conf_dir()), config_name=composer.config_name, version_base="1.3")(
            _nothing
        )()
        return 0
    app = Application(composer, args.multirun)
    jobs, hydra_words = check_jobs(composer, overrides, args.multirun)
    if jobs is None:
        return 0
    app.outcomes = [Outcome(" ".join(job) or "defaults", job) for job in jobs]
    _hand_to_hydra(app, args, hydra_words)
    return app.finish()


def _nothing(_: DictConfig) -> None:
    """Hydra only shows something."""


def check_jobs(
    composer: Composer, overrides: list[str], multirun: bool
) -> tuple[list[list[str]] | None, list[str]]:
    """Compose and check every job before the first one starts.

    Returns:
        The jobs' words (None: there is nothing left to do), and the words for Hydra.
    """
    parsed = parse(overrides)
    composer.check_names(parsed)
    if not multirun:
        return _check_single(composer, parsed, overrides)
    if any(o.key_or_group == "resume" and "auto" in str(o.value()) for o in parsed):
        raise UserError("resume=auto continues one run in its hydra.run.dir; it does not go with -m.")
    batches = BasicSweeper.split_arguments(parsed, None)
    jobs = [words for batch in batches for words in batch]
    for words in jobs:
        check_env(composer.compose(words))
    return jobs, overrides


def _check_single(
    composer: Composer, parsed: list[Override], overrides: list[str]
) -> tuple[list[list[str]] | None, list[str]]:
    values = {o.key_or_group: o.value() for o in parsed if not o.is_sweep_override()}
    run_dir = values.get("hydra.run.dir")
    words = list(overrides)
    if values.get("resume") == "auto":
        words = _resolve_auto(run_dir, words)
    config = composer.compose(words)
    if config.resume is not None:
        checkpoint = Path(config.resume)
        if run_dir is None:
            words.append(f"hydra.run.dir={quoted(str(folder_of(checkpoint).path))}")
        same_folder = run_dir is None or Path(str(run_dir)).resolve() == folder_of(checkpoint).path.resolve()
        if same_folder and nothing_left(checkpoint, config):
            print(
                f"this run is finished ({config.total_env_steps:,} env steps); to train on, "
                f"type a larger total_env_steps. Files are in {shown_path(folder_of(checkpoint).path)}"
            )
            return None, []
    check_env(config)
    return [words], words


def _resolve_auto(run_dir: object, words: list[str]) -> list[str]:
    """`resume=auto` as the checkpoint it means, or as a fresh start."""
    if run_dir is None:
        raise UserError("resume=auto needs a folder to look in: type hydra.run.dir=PATH too.")
    folder = RunFolder(Path(str(run_dir)))
    rest = [word for word in words if not word.replace(" ", "").startswith("resume=")]
    if folder.last.is_file():
        return [*rest, f"resume={quoted(str(folder.last))}"]
    folder.remove_leftovers()
    return rest


def check_env(config: DictConfig) -> None:
    """Make the env once: its id, its packages and its spaces are refused before a folder is made."""
    values = OmegaConf.to_container(config.env, resolve=True)
    assert isinstance(values, dict)
    if values.pop("_target_") == f"{GymEnvs.__module__}.{GymEnvs.__qualname__}":
        GymEnvs(**{str(k): v for k, v in values.items()})
    if config.init_from is not None:
        from lit_dqn.checkpoint_file import read_checkpoint

        read_checkpoint(Path(config.init_from))


def _hand_to_hydra(app: Application, args: argparse.Namespace, words: list[str]) -> None:
    options = [f"--config-dir={app.composer.config_dir}"] if app.composer.config_dir else []
    options += [f"--config-name={args.config_name}"] if args.config_name else []
    options += ["--multirun"] if app.multirun else []
    argv, sys.argv = sys.argv, [sys.argv[0], *options, *words]
    try:
        main = hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
        main(app.job)()
    except Interrupted as stop:
        if app.multirun:
            app.finish()
        raise Interrupted(stop.exit_code - 128) from stop
    finally:
        sys.argv = argv


def quoted(value: str) -> str:
    """A value that Hydra reads back as this text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(not (c.isalnum() or c in "/._-") for c in value) else value


def shown_path(path: Path) -> Path:
    """Relative to where the user is, if it lies below."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path


def help_text(composer: Composer) -> str:
    """What there is to type."""
    options = composer.options()
    lines = ["usage: python -m lit_dqn [-m] [group=choice] [key=value] ...", ""]
    for group, title in (("env", "environments"), ("agent", "agents"), ("experiment", "experiments")):
        lines.append(f"{title}: " + " ".join(f"{group}={name}" for name in options.get(group, [])))
    lines += ["", "examples:", *(f"  {example}" for example in EXAMPLES), ""]
    others = {
        g: c for g, c in options.items() if g not in ("env", "agent", "experiment", "tuned") and len(c) > 1
    }
    lines.append("more choices: " + "; ".join(f"{g}={'|'.join(c)}" for g, c in others.items()))
    lines.append("every option and its value: python -m lit_dqn --cfg job; own yaml: --config-dir PATH")
    return "\n".join(lines)


logging.getLogger("hydra").setLevel(logging.WARNING)
