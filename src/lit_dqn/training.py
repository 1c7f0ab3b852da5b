"""Puts the parts together and runs one fit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.loggers import TensorBoardLogger

from lit_dqn.allocator import keep_freed_memory
from lit_dqn.callbacks.checkpoints import Checkpoints
from lit_dqn.callbacks.evaluation import Evaluation, Scores
from lit_dqn.callbacks.points import CURVES, Points, Recorder
from lit_dqn.callbacks.progress import ProgressBar
from lit_dqn.callbacks.signals import StopSignals
from lit_dqn.checkpoint_file import FORMAT, HEADER, check_row_files, is_resumable, read_checkpoint
from lit_dqn.checkpointing import AtomicCheckpointIO
from lit_dqn.config.build import build
from lit_dqn.config.compose import check, plain
from lit_dqn.data import ReplayDataModule, ReplayDataset
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.gym import close_quietly
from lit_dqn.envs.spaces import describe
from lit_dqn.errors import RunError, UserError
from lit_dqn.evaluation import Evaluator
from lit_dqn.experience import EpsilonGreedy, ExperienceSource
from lit_dqn.files import MetricsFile, write_json
from lit_dqn.folder import RunFolder, new_folder, own_folder_of
from lit_dqn.global_generators import seed_global_generators
from lit_dqn.module import LitDQN
from lit_dqn.networks.qnetwork import acting_values
from lit_dqn.preflight import check_parts, learning_parts
from lit_dqn.replay.segments import Segments
from lit_dqn.report import result_values
from lit_dqn.run_log import log, quiet_lightning, run_log
from lit_dqn.seeding import numpy_generator


def train(config: DictConfig, run_dir: str | Path | None = None) -> dict[str, Any]:
    """Run a configuration made by `compose`; returns what result.json holds.

    Args:
        config: `mode=train`; `resume` continues a run, in its own folder unless `run_dir` is given.
        run_dir: where files go; None makes a folder below `outputs/`.

    Raises:
        UserError: the configuration cannot work.
        RunError: the run failed.
    """
    check(config)
    if config.mode != "train":
        raise UserError(f"train() takes mode=train, got mode={config.mode}.")
    if config.resume == "auto":
        raise UserError("resume=auto is for the command line; give train() the path of a checkpoint.")
    for advice in check_parts(plain(config)):
        log.warning(advice)
    resumed = resumed_in(plain(config))
    if run_dir is not None:
        folder = RunFolder(Path(run_dir))
    else:
        folder = new_folder() if resumed is None else own_folder_of(resumed.path)
    with folder.claimed(None if resumed is None else resumed.path):
        return train_in(folder, plain(config), resumed)


def resumed_in(config: dict[str, Any]) -> Resumed | None:
    """The checkpoint that a configuration resumes, if it does; see `Resumed`."""
    return None if config["resume"] is None else Resumed(Path(config["resume"]))


def train_in(folder: RunFolder, config: dict[str, Any], resumed: Resumed | None) -> dict[str, Any]:
    """Run a checked configuration in a claimed folder; see `train`."""
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    if resumed is not None:
        folder.go_on(resumed.path, resumed.row_files)
    with run_log(folder), quiet_lightning():
        return Fit(config, folder, resumed).run()


class Resumed:
    """The checkpoint a run goes on from, and what must be known of it before Lightning reads it.

    Args:
        path: the checkpoint.

    Raises:
        UserError: there is no such checkpoint, or it cannot be resumed.
    """

    def __init__(self, path: Path) -> None:
        checkpoint = read_checkpoint(path)
        if not is_resumable(checkpoint):
            raise UserError(f"{path} holds weights only and cannot be resumed.")
        self.path = path
        self.row_files = check_row_files(path, checkpoint)
        self.env_step: int = checkpoint["learner"]["env_step"]
        self.wall_seconds: float = checkpoint[HEADER].get("wall_seconds", 0.0)


class Fit:
    """One fit: builds every part from plain values, runs it, writes the result.

    Args:
        config: the checked configuration as plain containers.
        folder: the run's folder, ready for it.
        resumed: what it goes on from; None: a new run.
    """

    def __init__(self, config: dict[str, Any], folder: RunFolder, resumed: Resumed | None) -> None:
        self.config, self.folder, self.resumed = config, folder, resumed
        seed_global_generators(config["seed"])
        set_threads(config["trainer"]["threads"])
        keep_freed_memory()
        self.env = build("env", config["env"], trusted=True)
        self.header = {
            "format": FORMAT,
            "config": config,
            "spaces": {
                "observation": describe(self.env.raw_observation_space),
                "action": describe(self.env.action_space),
            },
        }
        self.epsilon = build("exploration", config["exploration"], trusted=True)
        self.scores = Scores()
        self.evaluator = self._evaluator()
        self.module, self.data = self._learner_and_data()
        self.started = time.perf_counter()

    def _evaluator(self) -> Evaluator:
        values = self.config["evaluation"]
        return Evaluator(
            self.env,
            self.config["seed"],
            episodes=max(1, values["episodes"]),
            num_envs=values["num_envs"],
            epsilon=values["epsilon"],
            max_episode_steps=values["max_episode_steps"],
            stack=FrameStack.of(self.config["buffer"]),
        )

    def _learner_and_data(self) -> tuple[LitDQN, ReplayDataModule]:
        config, env, seed = self.config, self.env, self.config["seed"]
        agent, q_net, replay = learning_parts(config, env)
        exploring = numpy_generator(seed, "exploration")
        actor = EpsilonGreedy(acting_values(q_net), env.num_actions, exploring, env.action_mask)
        envs = env.make(config["experience"]["num_envs"])
        stack = FrameStack.of(config["buffer"])
        source = ExperienceSource(envs, env.id, replay, actor, self.epsilon, seed, stack)
        rounds = {k: v for k, v in config["experience"].items() if k != "num_envs"}
        dataset = ReplayDataset(source, total_env_steps=config["total_env_steps"], **rounds)
        module = LitDQN(
            q_net,
            agent,
            build("optimizer", config["optimizer"], trusted=True),
            self.evaluator,
            replay.update_priorities,
        )
        return module, ReplayDataModule(dataset, Segments(self.folder.replay))

    def run(self) -> dict[str, Any]:
        """Fit, and write the result.

        Raises:
            RunError: training failed.
            Interrupted: a signal asked it to stop.
        """
        log.info(
            "%s on %s, seed %s, in %s", self._agent(), self.env.id, self.config["seed"], self.folder.path
        )
        with closing(MetricsFile(self.folder.metrics, CURVES)) as metrics_file, StopSignals() as signals:
            trainer = self._trainer(self._callbacks(Recorder(metrics_file), signals))
            self.data.source.on_step = lambda _: signals.check() if self.data.dataset.round == 0 else None
            self.evaluator.on_step = signals.check
            try:
                path = None if self.resumed is None else self.resumed.path
                trainer.fit(self.module, datamodule=self.data, ckpt_path=path, weights_only=True)
            except SystemExit as error:  # Lightning makes one of a KeyboardInterrupt; we raise neither
                cause = error.__context__ or error
                raise RunError(f"the env, or other code in the run, raised {cause!r}.") from error
            finally:
                close_quietly(self.data.source.envs)
        result = self._write_result(finished=True)
        self._log_hyperparameters(trainer)
        log.info("finished: %s", result)
        return result

    def _log_hyperparameters(self, trainer: Trainer) -> None:
        best = self.scores.best_mean
        for logger in trainer.loggers:
            logger.log_hyperparams(
                flat(self.config), {"hparam/best_eval_return": float("nan") if best is None else best}
            )
            logger.finalize("success")

    def _callbacks(self, recorder: Recorder, signals: StopSignals) -> list[Callback]:
        config = self.config
        points = Points(recorder, self.epsilon, config["trainer"]["log_interval"])
        evaluating = config["evaluation"]["episodes"] > 0
        evaluation = Evaluation(
            recorder,
            self.scores,
            self.evaluator,
            interval=config["evaluation"]["interval"] if evaluating else None,
            random_baseline=config["evaluation"]["random_baseline"],
            stop_at_return=config["evaluation"]["stop_at_return"],
            best_path=self.folder.best,
            header=self.header,
            on_result=lambda: self._write_result(finished=False),
        )
        checkpoints = Checkpoints(
            self.folder.checkpoints,
            points,
            evaluation,
            self.header,
            before_save=self._note_time,
            **config["checkpoint"],
        )
        bar = []
        if config["trainer"]["progress_bar"]:
            total = config["total_env_steps"]
            bar.append(ProgressBar(self.evaluator, self.scores, self.epsilon, total))
        return [signals.installer, *bar, points, evaluation, checkpoints, signals]

    def _trainer(self, callbacks: list[Callback]) -> Trainer:
        values = self.config["trainer"]
        accelerator, devices = devices_of(values["gpus"])
        return Trainer(
            accelerator=accelerator,
            devices=devices,
            precision=values["precision"],
            strategy=values["strategy"],
            max_epochs=1,
            check_val_every_n_epoch=None,
            val_check_interval=10**9,  # the Evaluation callback says when
            num_sanity_val_steps=0,
            callbacks=callbacks,
            logger=self._tensorboard(),
            plugins=[AtomicCheckpointIO()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
            default_root_dir=self.folder.path,
        )

    def _tensorboard(self) -> TensorBoardLogger | bool:
        if not self.config["logger"]["tensorboard"]:
            return False
        return TensorBoardLogger(
            save_dir=self.folder.path,
            name="tensorboard",
            version="",
            default_hp_metric=False,
            purge_step=None if self.resumed is None else self.resumed.env_step,
        )

    def _agent(self) -> str:
        return str(self.config["agent"]["_target_"]).rpartition(".")[2].lower()

    def _note_time(self) -> None:
        self.header["wall_seconds"] = self._seconds()

    def _seconds(self) -> float:
        before = 0.0 if self.resumed is None else self.resumed.wall_seconds
        return before + time.perf_counter() - self.started

    def _write_result(self, finished: bool) -> dict[str, Any]:
        result = result_values(
            env_id=self.env.id,
            agent=self._agent(),
            seed=self.config["seed"],
            env_steps=self.data.source.env_step,
            updates=self.module.updates,
            episodes=self.data.source.episodes,
            evaluation=self.scores.last,
            best=self.scores.best_mean,
            random_mean=self.scores.random_mean,
            seconds=self._seconds(),
            finished=finished,
        )
        write_json(self.folder.result, result)
        return result


def devices_of(gpus: int | list[int] | str | None) -> tuple[str, int | list[int]]:
    """`trainer.gpus` in Lightning's words: (accelerator, devices)."""
    if gpus == "auto":
        gpus = 1 if torch.cuda.device_count() else 0
    if gpus in (None, 0, []):
        return "cpu", 1
    assert isinstance(gpus, (int, list))
    return "gpu", gpus


def set_threads(threads: int | None) -> None:
    """Threads of torch's operators; small networks are fastest on one."""
    torch.set_num_threads(threads or 1)


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys, for TensorBoard's HParams."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values
