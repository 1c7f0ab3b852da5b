"""Which spaces are supported, how observations become arrays, and how a checkpoint describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lit_dqn.errors import UserError

Array = NDArray[Any]
SUPPORTED_OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"


def check_spaces(env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
    """Refuse what deep Q-learning cannot take.

    Raises:
        UserError: one sentence that names the env, its space and what is supported.
    """
    if not isinstance(action_space, spaces.Discrete):
        raise UserError(
            f"env {env_id} has the action space {_short(action_space)}, "
            "but Q-learning needs a finite one: Discrete(n) is supported."
        )
    if not _supported(observation_space):
        raise UserError(
            f"env {env_id} has the observation space {_short(observation_space)}, "
            f"but supported are {SUPPORTED_OBSERVATIONS}."
        )


def _short(space: gym.Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 120 else text[:117] + "..."


def _supported(space: gym.Space[Any]) -> bool:
    if isinstance(space, spaces.Dict):
        return len(space) > 0 and all(_supported(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return len(space) > 0 and all(_supported(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return space.dtype is not None and np.dtype(space.dtype).kind in "biuf" and 0 not in space.shape
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))


def encoded_space(space: gym.Space[Any]) -> spaces.Box:
    """The Box that the replay and the networks see: a Box keeps its shape, everything else is flattened.

    uint8 stays uint8; every other dtype becomes float32.
    """
    flat = space if isinstance(space, spaces.Box) else spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    if flat.dtype == np.uint8 and isinstance(space, spaces.Box):
        return space
    # int64 and float64 bounds may lie outside float32: they are not checked, only the shape counts.
    return spaces.Box(-np.inf, np.inf, shape=flat.shape, dtype=np.float32)


def encode(space: gym.Space[Any], target: spaces.Box, obs: Any) -> Array:
    """One observation as a fresh array of `target`'s dtype (Discrete is one-hot, `start` honoured).

    Raises:
        ValueError: the observation does not have the space's structure or shape, is not numeric, or a
            cast would change it: a category out of range, a fraction in an image of bytes.
    """
    if isinstance(space, spaces.Box):
        return _checked(space, obs, target.dtype)
    _check_parts(space, obs)
    return np.asarray(spaces.flatten(space, obs), dtype=target.dtype)


def _check_parts(space: gym.Space[Any], obs: Any) -> None:
    """Refuse what flattening would put into another part's place."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            if key not in obs:
                raise ValueError(f"has no part {key!r}, but the space says {list(space.spaces)}")
            _check_parts(part, obs[key])
    elif isinstance(space, spaces.Tuple):
        if len(obs) != len(space.spaces):
            raise ValueError(f"has {len(obs)} parts, but the space says {len(space.spaces)}")
        for part, one in zip(space.spaces, obs, strict=True):
            _check_parts(part, one)
    else:
        array = _checked(space, obs, space.dtype)
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
            category = array - space.start
            if (category < 0).any() or (category >= count).any():
                raise ValueError(f"has the category {obs}, but the space says {space}")


def _checked(space: gym.Space[Any], obs: Any, dtype: Any) -> Array:
    """A fresh array of that dtype with the space's shape."""
    array = np.asarray(obs)
    if array.shape != space.shape:
        raise ValueError(f"has shape {array.shape}, but the space says {space.shape}")
    if array.dtype == dtype:
        return np.array(array)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"has dtype {array.dtype}, but the space says {space.dtype}")
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if cast.dtype.kind in "biu" and not np.array_equal(cast, array):
        raise ValueError(f"has dtype {array.dtype} and values that the space's {space.dtype} cannot hold")
    return cast


def encode_batch(space: gym.Space[Any], obs: Any) -> Array:
    """A batch as the env emits it (an array [B, ...], or Dict/Tuple of such) -> [B, *encoded]."""
    target = encoded_space(space)
    if isinstance(space, spaces.Box):
        return _checked_batch(target, obs)
    return np.stack([encode(space, target, one) for one in _rows(space, obs)])


def _checked_batch(target: spaces.Box, obs: Any) -> Array:
    array = np.asarray(obs, dtype=target.dtype)
    if array.ndim == 0 or array.shape[1:] != target.shape:
        expected = ", ".join(["B", *map(str, target.shape)])
        raise ValueError(f"observations must have the shape [{expected}], got {list(array.shape)}")
    return array


def _rows(space: gym.Space[Any], obs: Any) -> list[Any]:
    """Split a batch into single observations."""
    if isinstance(space, spaces.Dict):
        columns = {key: _rows(part, obs[key]) for key, part in space.spaces.items()}
        count = len(next(iter(columns.values())))
        return [{key: column[i] for key, column in columns.items()} for i in range(count)]
    if isinstance(space, spaces.Tuple):
        return list(zip(*(_rows(part, obs[i]) for i, part in enumerate(space.spaces)), strict=True))
    return list(np.asarray(obs))


def describe(space: gym.Space[Any]) -> dict[str, Any]:
    """A plain description (str, int, list, dict) from which `rebuild` makes an equal encoder."""
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "parts": {key: describe(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "parts": [describe(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multidiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multibinary", "shape": list(space.shape)}
    return {"kind": "box", "shape": list(space.shape or ()), "dtype": str(space.dtype)}


def rebuild(description: dict[str, Any]) -> gym.Space[Any]:
    """The space behind a description; a Box comes back without its bounds, which nothing here uses."""
    match description:
        case {"kind": "dict", "parts": dict(parts)}:
            # Pairs keep their order; a plain dict would be sorted, and the encoding with it.
            return spaces.Dict([(key, rebuild(part)) for key, part in parts.items()])
        case {"kind": "tuple", "parts": list(parts)}:
            return spaces.Tuple([rebuild(part) for part in parts])
        case {"kind": "discrete", "n": n, "start": start}:
            return spaces.Discrete(n, start=start)
        case {"kind": "multidiscrete", "nvec": nvec, "start": start}:
            return spaces.MultiDiscrete(nvec, start=start)
        case {"kind": "multibinary", "shape": shape}:
            return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])
        case {"kind": "box", "shape": shape, "dtype": dtype}:
            return _unbounded_box(shape, np.dtype(dtype))
    raise ValueError(f"not a description of a space: {description!r}")


def _unbounded_box(shape: Sequence[int], dtype: np.dtype[Any]) -> spaces.Box:
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape=tuple(shape), dtype=dtype.type)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape=tuple(shape), dtype=dtype.type)
    limits = np.iinfo(dtype)
    return spaces.Box(limits.min, limits.max, shape=tuple(shape), dtype=dtype.type)
