"""The schema of root values and of the groups that are not pluggable; the values are in conf/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, field_validator

from lit_dqn.config.problems import user_error
from lit_dqn.errors import UserError

Count = Annotated[int, Ge(1)]
NonNegative = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _gpus(value: object) -> object:
    indices = value if isinstance(value, list) else [value]
    if value in ("auto", None) or all(type(index) is int and index >= 0 for index in indices):
        return value
    if type(value) is int and value == -1:
        return value
    raise ValueError("must be 0 (the CPU), a number of GPUs, -1 (all), a list such as [0], or auto")


Gpus = Annotated[object, PlainValidator(_gpus)]


class Root(Strict):
    seed: Annotated[int, Ge(0), Le(2**63 - 1)]
    total_env_steps: Count
    gamma: Share
    mode: Literal["train", "eval", "play"]
    ckpt: str | None
    resume: str | None
    init_from: str | None
    compile: Literal["auto"] | bool
    trust: bool


class Experience(Strict):
    num_envs: Count
    steps_per_round: Count
    updates_per_round: Count
    learning_starts: NonNegative


class Evaluation(Strict):
    interval: Count
    episodes: NonNegative
    num_envs: Count
    epsilon: Share
    max_episode_steps: Count
    random_baseline: bool
    stop_at_return: float | None


class Checkpoint(Strict):
    interval: Count
    keep: Count
    resumable: bool


class Trainer(Strict):
    gpus: Gpus
    precision: str
    strategy: Literal["auto"]
    threads: Annotated[int, Gt(0)] | None
    log_interval: Count
    progress_bar: bool

    @field_validator("precision")
    @classmethod
    def _precision(cls, value: str) -> str:
        if value == "16-mixed":
            raise ValueError("float16 would need loss scaling; type trainer.precision=bf16-mixed")
        if value not in ("32-true", "bf16-mixed"):
            raise ValueError("must be 32-true or bf16-mixed")
        return value


class Logger(Strict):
    tensorboard: bool


GROUPS: dict[str, type[Strict]] = {
    "experience": Experience,
    "evaluation": Evaluation,
    "checkpoint": Checkpoint,
    "trainer": Trainer,
    "logger": Logger,
}


def check_central(config: Mapping[str, Any], pluggable: Mapping[str, Any]) -> None:
    """Check root values and plain groups, and what several values must satisfy together.

    Args:
        config: the whole configuration as plain containers.
        pluggable: names of the groups that check themselves.

    Raises:
        UserError: one sentence.
    """
    root = {k: v for k, v in config.items() if k not in GROUPS and k not in pluggable}
    parts: list[tuple[str, type[Strict], Any]] = [("", Root, root)]
    parts += [(name, schema, config[name]) for name, schema in GROUPS.items()]
    for prefix, schema, values in parts:
        try:
            schema.model_validate(values)
        except ValidationError as error:
            raise user_error(prefix, error, schema.model_fields) from error
    _check_together(config)


def _check_together(config: Mapping[str, Any]) -> None:
    budget, starts = config["total_env_steps"], config["experience"]["learning_starts"]
    if config["mode"] == "train" and starts >= budget:
        raise UserError(
            f"experience.learning_starts={starts} leaves nothing of total_env_steps={budget} to learn from: "
            f"no update would be done. Type experience.learning_starts={budget // 10}, or a larger budget."
        )
    if config["compile"] is True:
        raise UserError("compile=true is not available in this version; type compile=auto (runs eagerly).")
    if config["mode"] in ("eval", "play") and config["ckpt"] is None:
        raise UserError(f"mode={config['mode']} needs a checkpoint: type ckpt=PATH.")
    if config["mode"] == "train" and config["ckpt"] is not None:
        raise UserError("ckpt= goes with mode=eval or mode=play; to go on training type resume=PATH.")
    if config["mode"] == "eval" and config["evaluation"]["episodes"] == 0:
        raise UserError("mode=eval needs evaluation.episodes >= 1, got 0.")
    if config["resume"] is not None and (config["init_from"] is not None or config["mode"] != "train"):
        raise UserError("resume= goes with neither init_from= nor mode=eval or play.")
