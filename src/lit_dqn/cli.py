"""From the words of the command line to runs: help, checks of every job, Hydra, exit codes."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from lit_dqn.config.compose import (
    LONGEST_NAME,
    OPTIONAL,
    Composer,
    plain,
    register_resolvers,
)
from lit_dqn.config.overrides import parse, values_of
from lit_dqn.config.words import command, quoted, shown_path
from lit_dqn.errors import Interrupted, RunError, UserError
from lit_dqn.folder import RunFolder, folder_of, own_folder_of

EXAMPLES = (
    "python -m lit_dqn env=cartpole",
    "python -m lit_dqn env=gym env.id=FrozenLake-v1 total_env_steps=20000",
    "python -m lit_dqn -m seed=0,1,2 agent.double=true,false",
    "python -m lit_dqn resume=outputs/DATE/TIME/checkpoints/last.ckpt total_env_steps=100000",
    "python -m lit_dqn mode=eval ckpt=outputs/DATE/TIME/checkpoints/best.ckpt evaluation.episodes=100",
)


@dataclass
class Job:
    """One job: its words, its checked configuration, and how it ended."""

    words: list[str]
    config: DictConfig
    state: str = "not run"
    note: str = ""
    exit_code: int = 0
    advice: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """What a command line comes to, all of it checked.

    Args:
        words: for Hydra.
        jobs: in Hydra's order.
        leftovers: a folder to clear of a run that wrote no checkpoint.
    """

    words: list[str]
    jobs: list[Job]
    leftovers: RunFolder | None = None


@dataclass
class Application:
    """Runs the jobs of a plan, in their order."""

    jobs: Iterator[Job]

    def run_job(self, _: DictConfig) -> None:
        """What Hydra calls once per job, with the job's folder made; keeps failures to itself.

        An exception that reached Hydra would be shown after the whole sweep; sys.exit would end it.

        Raises:
            Interrupted: a signal; the remaining jobs are not run.
        """
        job = next(self.jobs)
        folder = RunFolder(Path(HydraConfig.get().runtime.output_dir))
        lines = [f"writing to {shown_path(folder.path)}", *(f"note: {advice}" for advice in job.advice)]
        print(*lines, sep="\n", file=sys.stderr, flush=True)
        from lit_dqn.modes import run_mode  # imports Lightning, which takes seconds

        try:
            resumed = job.config.resume
            with folder.claimed(None if resumed is None else Path(resumed)):
                save_words(folder, job.config)
                job.note = run_mode(job.config, folder)
            job.state = "done"
        except Interrupted as stop:
            job.state, job.exit_code = "interrupted", stop.exit_code
            print(f"\n{how_to_resume(folder, job.config)}", file=sys.stderr)
            raise
        except (UserError, RunError) as error:
            job.state, job.note, job.exit_code = "failed", str(error), error.exit_code
            print(f"error: {error}", file=sys.stderr)
        except (Exception, SystemExit) as error:  # an env's own failure, or a bug
            job.state, job.note, job.exit_code = "failed", f"{type(error).__name__}: {error}", 1
            print(f"The traceback is in {shown_path(folder.log)}.\nerror: {job.note}", file=sys.stderr)


def save_words(folder: RunFolder, config: DictConfig) -> None:
    """What was composed and what was typed, in `.hydra/`; Hydra would write it before the folder is ours."""
    own = HydraConfig.get()
    (folder.path / ".hydra").mkdir(exist_ok=True)
    OmegaConf.save(config, folder.path / ".hydra" / "config.yaml")
    OmegaConf.save(own.overrides.task, folder.path / ".hydra" / "overrides.yaml")


def how_to_resume(folder: RunFolder, config: DictConfig) -> str:
    """What to type after a signal."""
    from lit_dqn.config.stored import foreign_code

    if not folder.last.is_file():
        return NOTHING_TO_RESUME
    if not config.checkpoint.resumable:
        return f"stopped; {shown_path(folder.last)} was written without its replay and cannot be resumed."
    trust = {"trust": True} if foreign_code(plain(config)) else {}
    return f"stopped; to go on type\n  {command(resume=shown_path(folder.last), **trust)}"


NOTHING_TO_RESUME = "stopped before the first round: there is nothing to resume."


def application(words: Sequence[str]) -> int:
    """Check the words, then run them; returns the exit code.

    Raises:
        UserError: nothing was written.
    """
    args = read_flags(words)
    register_resolvers()
    composer = Composer(args.config_dir, args.config_name)
    if args.help:
        print(help_text(composer))
        return 0
    if args.cfg == "job" and args.package is None:
        print(OmegaConf.to_yaml(composer.compose(args.overrides), resolve=args.resolve), end="")
        return 0
    if args.cfg or args.hydra_help or args.info or args.shell_completion:
        run_hydra(_nothing, composer, list(words), logging.DEBUG)
        return 0
    plan = plan_sweep(composer, args.overrides) if args.multirun else plan_run(composer, args.overrides)
    if plan.leftovers is not None:
        plan.leftovers.remove_leftovers()
    if not plan.jobs:
        return 0
    app = Application(iter(plan.jobs))
    stopped = None
    try:
        run_hydra(
            app.run_job, composer, [*(["--multirun"] if args.multirun else []), *plan.words], logging.WARNING
        )
    except Interrupted as stop:
        stopped = stop.exit_code
    if args.multirun:
        from lit_dqn.report import print_sweep

        print_sweep(names(plan.jobs), [(job.state, job.note) for job in plan.jobs])
        return stopped or int(any(job.exit_code or job.state == "not run" for job in plan.jobs))
    return stopped or plan.jobs[0].exit_code


def names(jobs: Sequence[Job]) -> list[str]:
    """Each job by the words that tell it from the others."""
    common = set.intersection(*({*job.words} for job in jobs))
    return [" ".join(word for word in job.words if word not in common) or " ".join(job.words) for job in jobs]


def read_flags(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's flags, and the overrides.

    Raises:
        UserError: an unknown flag.
    """
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        args, unknown = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise UserError(f"{error}.") from error
    if unknown:
        raise UserError(f"unknown flag {unknown[0]}; options are typed as key=value, --help shows them.")
    return args


def _nothing(_: DictConfig) -> None:
    """Hydra only shows something."""


def plan_sweep(composer: Composer, overrides: list[str]) -> Plan:
    """Compose and check every job before the first one starts.

    Raises:
        UserError: one of them cannot work.
    """
    parsed = parse(overrides)
    composer.check_names(parsed)
    if any(o.key_or_group == "resume" and "auto" in values_of(o) for o in parsed):
        raise UserError("resume=auto continues one run in its hydra.run.dir; it does not go with -m.")
    folder = composer.folder("hydra.sweep.dir", [o for o in parsed if not o.is_sweep_override()])
    if folder is not None and (folder / "multirun.yaml").exists():
        raise UserError(f"hydra.sweep.dir={folder} holds a sweep already; choose another folder.")
    words = composer.hydra_words(parsed)
    batches = BasicSweeper.split_arguments(parse(words), None)
    jobs = [checked_job(list(job), composer.compose(job)) for batch in batches for job in batch]
    if max(len(" ".join(job.words)) for job in jobs) > LONGEST_NAME:  # a folder's name would be cut off
        same = [o.key_or_group for o in parsed if not o.is_sweep_override()]
        words.append(f"hydra.job.config.override_dirname.exclude_keys=[{','.join(same)}]")
    return Plan(words, jobs)


def plan_run(composer: Composer, overrides: list[str]) -> Plan:
    """Check a single run, and find out where it goes on.

    Raises:
        UserError: it cannot work.
    """
    parsed = parse(overrides)
    run_dir = composer.folder("hydra.run.dir", parsed)
    leftovers = None
    if any(o.key_or_group == "resume" and o.value() == "auto" for o in parsed):
        if run_dir is None:
            raise UserError("resume=auto needs a folder to look in: type hydra.run.dir=PATH too.")
        overrides, leftovers = _resolve_auto(RunFolder(run_dir), parsed)
        parsed = parse(overrides)
    config = composer.compose(overrides)
    words = composer.hydra_words(parsed)
    folder = None if run_dir is None else RunFolder(run_dir.resolve())
    home = None if config.resume is None else folder_of(Path(config.resume))
    if config.resume is not None and folder is None:
        folder = own_folder_of(Path(config.resume))
        words.append(f"hydra.run.dir={quoted(str(folder.path))}")
    if folder is not None and home is not None and folder.path == home.path:
        reason = _why_finished(config)
        if reason is not None:
            print(f"this run is finished: {reason}. Files are in {shown_path(folder.path)}")
            return Plan(words, [])
    elif folder is not None and leftovers is None:
        folder.refuse_another_run()
    return Plan(words, [checked_job(words, config)], leftovers)


def _resolve_auto(folder: RunFolder, parsed: list[Override]) -> tuple[list[str], RunFolder | None]:
    """`resume=auto` as the checkpoint it means, or as a fresh start in a cleared folder."""
    rest = [o for o in parsed if o.key_or_group != "resume"]
    if folder.last.is_file():
        # What a run started from, and with which recipe, is in its checkpoint.
        kept = [str(o.input_line) for o in rest if o.key_or_group not in ("init_from", *OPTIONAL)]
        return [*kept, f"resume={quoted(str(folder.last))}"], None
    return [str(o.input_line) for o in rest], folder


def _why_finished(config: DictConfig) -> str | None:
    from lit_dqn.config.stored import why_finished  # imports torch

    return why_finished(Path(config.resume), config)


def checked_job(words: list[str], config: DictConfig) -> Job:
    """A job whose parts were put together once."""
    from lit_dqn.preflight import check_parts  # imports torch

    return Job(words, config, advice=check_parts(plain(config)))


def run_hydra(
    function: Callable[[DictConfig], None], composer: Composer, words: list[str], log_level: int
) -> None:
    """Hand words to Hydra, with the user's folder before ours in its search path."""
    logger = logging.getLogger("hydra")
    level_before = logger.level
    logger.setLevel(log_level)
    user, *ours = composer.roots
    options = [f"--config-dir={ours[0]}"] if ours else []
    # The flag and its value, which may be a word of its own.
    pairs = zip(["", *words], words, strict=False)
    kept = [
        word for before, word in pairs if not word.startswith("--config-dir") and before != "--config-dir"
    ]
    argv, sys.argv = sys.argv, [sys.argv[0], *options, *kept]
    try:
        hydra.main(config_path=str(user), config_name=composer.config_name, version_base="1.3")(function)()
    finally:
        sys.argv = argv
        logger.setLevel(level_before)


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
