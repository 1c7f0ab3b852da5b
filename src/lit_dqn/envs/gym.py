"""Any registered Gymnasium env with a Discrete action space, as a vector of copies."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import gymnasium as gym
from annotated_types import Ge
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from pydantic import validate_call

from lit_dqn.envs.action_mask import mask_slice
from lit_dqn.envs.border import Border
from lit_dqn.envs.image_layout import Layout
from lit_dqn.envs.spaces import check_spaces, encoded_space
from lit_dqn.errors import UserError

Env = gym.Env[Any, Any]


class GymEnvs:
    """Makes single and vector copies of one env; checks its spaces when built.

    Args:
        id: a registered id, or `module:Id-v0`, whose module is imported first.
        kwargs: passed to `gymnasium.make`.
        wrappers: `package.module.Class` of Gymnasium wrappers, applied in order inside the border.
        max_episode_steps: the time limit, given to `make` so that it can lengthen; None keeps the env's own.
        image_layout: of image observations, for networks that look at channels; `auto` tells it from the
            shape.

    Raises:
        UserError: the id, a wrapper or a package is missing, or a space is not supported.
    """

    @validate_call
    def __init__(
        self,
        *,
        id: str,
        kwargs: dict[str, Any] = {},  # noqa: B006  (never changed)
        wrappers: list[str] = [],  # noqa: B006  (never changed)
        max_episode_steps: Annotated[int, Ge(1)] | None = None,
        image_layout: Layout = "auto",
    ) -> None:
        self.kwargs = kwargs
        self.spec = find_spec(id)
        self.id = self.spec.id
        self.time_limit = max_episode_steps or self.spec.max_episode_steps
        self.wrappers = [find_wrapper(path) for path in wrappers]
        probe = self.make_single()
        try:
            check_spaces(self.id, probe.observation_space, probe.action_space)
            self.raw_observation_space = probe.observation_space
            assert isinstance(probe.action_space, spaces.Discrete)
            self.action_space = probe.action_space
            self.action_mask = self._mask_slice()
        finally:
            close_quietly(probe)
        self.observation_space = encoded_space(self.raw_observation_space)
        shape = self.observation_space.shape
        if image_layout != "auto" and len(shape) != 3:
            raise UserError(
                f"env.image_layout={image_layout} is for images of three axes; observations of env {self.id} "
                f"have the shape {list(shape)}. Leave it out."
            )

    @property
    def num_actions(self) -> int:
        return int(self.action_space.n)

    def _mask_slice(self) -> slice | None:
        try:
            return mask_slice(self.raw_observation_space, self.num_actions)
        except UserError as error:
            raise UserError(f"env {self.id}: {error}") from error

    def make_single(self, render_mode: str | None = None, time_limit: int | None = None) -> Env:
        """One env with the user's wrappers, without the border.

        Args:
            time_limit: env steps; replaces the env's own limit.
        """
        kwargs = self.kwargs | ({"render_mode": render_mode} if render_mode else {})
        limit = time_limit or self.time_limit
        try:
            env = gym.make(self.spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
            for wrap in self.wrappers:
                env = wrap(env)
        except gym.error.DependencyNotInstalled as error:
            raise UserError(f"env {self.id} needs a package that is missing: {_remedy(error)}") from error
        except Exception as error:
            reason = " ".join(str(error).split())
            raise UserError(f"env {self.id} could not be made: {type(error).__name__}: {reason}") from error
        return env

    def make(self, num_envs: int, time_limit: int | None = None) -> VectorEnv[Any, Any, Any]:
        """A vector of `num_envs` copies behind the border, with NEXT_STEP autoreset.

        The env's own vector implementation is used where nothing has to wrap the single env. An observation
        may be overwritten by the next step: whoever keeps it copies it.

        Args:
            time_limit: env steps; replaces the env's own limit.

        Raises:
            UserError: the vector env resets in another mode.
        """
        limit = time_limit or self.time_limit
        if num_envs > 1 and self._has_vector_implementation(limit):
            envs: VectorEnv[Any, Any, Any] = gym.make_vec(
                self.spec,
                num_envs,
                vectorization_mode="vector_entry_point",
                **(self.kwargs | ({"max_episode_steps": limit} if limit else {})),
            )
        else:
            envs = SyncVectorEnv([partial(self._make_bordered, limit)] * num_envs, copy=False)
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise UserError(f"env {self.id} must reset with AutoresetMode.NEXT_STEP, got {mode}.")
        return envs

    def _make_bordered(self, limit: int | None) -> Env:
        return Border(self.make_single(time_limit=limit), self.id)

    def _has_vector_implementation(self, limit: int | None) -> bool:
        entry = self.spec.vector_entry_point
        plain = isinstance(self.raw_observation_space, spaces.Box) and self.action_space.start == 0
        if entry is None or self.wrappers or self.spec.additional_wrappers or not plain:
            return False
        if self.raw_observation_space.dtype != self.observation_space.dtype:
            return False
        creator = entry if callable(entry) else load_env_creator(entry)
        accepted = inspect.signature(creator).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        needed = {*self.spec.kwargs, *self.kwargs, *(["max_episode_steps"] if limit else [])}
        return takes_any or needed <= set(accepted)


def find_spec(env_id: str) -> EnvSpec:
    """The registry's entry for an id, with near names in the refusal.

    Raises:
        UserError: no such module or id.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UserError(
                f"env.id={env_id}: there is no module {error.name!r}; is its folder on PYTHONPATH?"
            ) from error
        except Exception as error:
            raise UserError(
                f"env.id={env_id}: importing {module} failed: {type(error).__name__}: {error}"
            ) from error
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        near = difflib.get_close_matches(name, list(gym.registry), n=3, cutoff=0.6)
        hint = f"; near names: {', '.join(near)}" if near else ""
        raise UserError(f"env.id={env_id}: Gymnasium has no env of that name{hint}.") from error


def find_wrapper(path: str) -> Callable[[Env], Env]:
    """The class behind `package.module.Class`.

    Raises:
        UserError: it cannot be imported, or is no Gymnasium wrapper.
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        wrapper = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a user's own module does when it is imported
        raise UserError(
            f"env.wrappers: {path!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise UserError(f"env.wrappers: {path!r} is no gymnasium.Wrapper.")
    return wrapper


def close_quietly(env: Env | VectorEnv[Any, Any, Any]) -> None:
    """Close; an env that fails while closing must not hide a success or an earlier error."""
    try:
        env.close()
    except Exception as error:
        gym.logger.warn(f"closing the env failed: {error}")


def _remedy(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "box2d" in text.lower():
        return 'type pip install "lit-dqn[box2d]"'
    return text
