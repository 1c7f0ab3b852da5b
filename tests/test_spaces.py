"""Observation spaces: what is taken, how it is encoded, what is refused."""

from __future__ import annotations

from collections import OrderedDict

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_dqn.envs.spaces import check_spaces, describe, encode, encode_batch, encoded_space, rebuild
from lit_dqn.errors import UserError


def box(dtype, shape=(2, 3)):
    if np.dtype(dtype).kind == "f":
        return spaces.Box(-5.0, 5.0, shape=shape, dtype=dtype)
    return spaces.Box(0, 1 if np.dtype(dtype).kind == "b" else 100, shape=shape, dtype=dtype)


BOX_DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint16, bool]
BOXES = {f"box {np.dtype(d)}": box(d) for d in BOX_DTYPES} | {"scalar box": box(np.float32, ())}
CATEGORIES = {
    "discrete": spaces.Discrete(4),
    "discrete from 3": spaces.Discrete(4, start=3),
    "discrete from -2": spaces.Discrete(4, start=-2),
    "multidiscrete": spaces.MultiDiscrete([2, 3, 4]),
    "multidiscrete with starts": spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "multidiscrete grid": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    "multibinary": spaces.MultiBinary(5),
    "multibinary grid": spaces.MultiBinary((2, 3)),
}
COMPOSITE = {
    "dict": spaces.Dict({"b": spaces.Discrete(3, start=1), "a": box(np.float64)}),
    "dict in its own order": spaces.Dict(
        OrderedDict([("z", spaces.Discrete(2)), ("a", box(np.float32, (1,)))])
    ),
    "tuple": spaces.Tuple([spaces.MultiBinary(2), box(np.uint8), spaces.Discrete(2)]),
    "nested": spaces.Dict(
        {
            "inner": spaces.Tuple([spaces.Dict({"x": spaces.Discrete(2)}), spaces.MultiDiscrete([2, 2])]),
            "outer": box(np.int32, (2,)),
        }
    ),
}
SUPPORTED = BOXES | CATEGORIES | COMPOSITE
FLATTENED = CATEGORIES | COMPOSITE


def samples(space, count=20):
    space.seed(1)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("name", FLATTENED)
def test_what_is_no_box_is_encoded_as_gymnasium_flattens_it(name):
    space = FLATTENED[name]
    target = encoded_space(space)
    for obs in samples(space):
        encoded = encode(space, target, obs)
        assert encoded.dtype == np.float32
        assert encoded.shape == target.shape
        np.testing.assert_array_equal(encoded, spaces.flatten(space, obs).astype(np.float32))


@pytest.mark.parametrize("name", BOXES)
def test_a_box_keeps_its_shape_and_only_bytes_keep_their_dtype(name):
    space = BOXES[name]
    target = encoded_space(space)
    assert target.shape == space.shape
    assert target.dtype == (np.uint8 if space.dtype == np.uint8 else np.float32)
    for obs in samples(space):
        encoded = encode(space, target, obs)
        assert encoded.dtype == target.dtype
        np.testing.assert_array_equal(encoded, np.asarray(obs).astype(target.dtype))


def test_a_discrete_observation_is_one_hot_from_its_start():
    space = spaces.Discrete(3, start=-1)
    rows = [encode(space, encoded_space(space), value).tolist() for value in (-1, 0, np.int64(1))]
    assert rows == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_an_encoded_observation_never_shares_memory_with_the_envs(dtype):
    space = box(dtype, (3,))
    shared = np.ones(3, dtype=dtype)
    encoded = encode(space, encoded_space(space), shared)
    shared[:] = 9
    assert encoded.tolist() == [1, 1, 1]
    assert encoded.flags.writeable


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_batch_is_encoded_as_its_single_observations(name):
    space = SUPPORTED[name]
    obs = samples(space, 5)
    batched = concatenate(space, obs, create_empty_array(space, 5))
    target = encoded_space(space)
    expected = np.stack([encode(space, target, one) for one in obs])
    encoded = encode_batch(space, batched)
    assert encoded.dtype == target.dtype
    np.testing.assert_array_equal(encoded, expected)


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_space_comes_back_from_its_plain_description_with_the_same_encoding(name):
    space = SUPPORTED[name]
    description = describe(space)
    assert_plain(description)
    back = rebuild(description)
    assert describe(back) == description
    assert encoded_space(back).shape == encoded_space(space).shape
    assert encoded_space(back).dtype == encoded_space(space).dtype
    for obs in samples(space):
        np.testing.assert_array_equal(
            encode(back, encoded_space(back), obs), encode(space, encoded_space(space), obs)
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        assert back == space


def assert_plain(value):
    """Only what a checkpoint loads without running code."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for part in value:
            assert_plain(part)
    else:
        assert type(value) in (str, int)


LEAVES = st.one_of(
    st.builds(lambda n, s: spaces.Discrete(n, start=s), st.integers(1, 4), st.integers(-3, 3)),
    st.builds(lambda n: spaces.MultiDiscrete(n), st.lists(st.integers(1, 3), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
    st.builds(
        box,
        st.sampled_from(BOX_DTYPES),
        st.lists(st.integers(1, 2), min_size=0, max_size=2).map(tuple),
    ),
)
SPACES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.lists(parts, min_size=1, max_size=3).map(
            lambda found: spaces.Dict([(f"k{-i}", part) for i, part in enumerate(found)])
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(space=SPACES)
def test_any_nesting_of_spaces_is_encoded_alike_alone_in_a_batch_and_rebuilt(space):
    check_spaces("X-v0", space, spaces.Discrete(2))
    target, back = encoded_space(space), rebuild(describe(space))
    obs = samples(space, 3)
    expected = np.stack([encode(space, target, one) for one in obs])
    if not isinstance(space, spaces.Box):
        flat = np.stack([spaces.flatten(space, one) for one in obs]).astype(np.float32)
        np.testing.assert_array_equal(expected, flat)
    batched = concatenate(space, obs, create_empty_array(space, 3))
    assert batch_space(space, 3) is not None
    np.testing.assert_array_equal(encode_batch(space, batched), expected)
    np.testing.assert_array_equal(encode_batch(back, batched), expected)


@pytest.mark.parametrize(
    ("space", "obs", "problem"),
    [
        (box(np.float32), np.zeros((3, 2), np.float32), r"has shape \(3, 2\), but the space says \(2, 3\)"),
        (box(np.float32), np.zeros(6, np.float32), r"has shape \(6,\), but the space says \(2, 3\)"),
        (box(np.float32, (1,)), np.array(["a"]), "has dtype <U1, but the space says float32"),
        (box(np.float32, (1,)), np.array([None]), "has dtype object"),
        (box(np.uint8, (2,)), np.array([0.5, 1.0]), "dtype float64 and values that the space's uint8 cannot"),
        (box(np.uint8, (2,)), np.array([300, 1]), "dtype int64 and values that the space's uint8 cannot"),
        (box(np.uint8, (2,)), np.array([-1, 1]), "values that the space's uint8 cannot hold"),
        (spaces.Discrete(3), 3, r"has the category 3, but the space says Discrete\(3\)"),
        (spaces.Discrete(3, start=1), 0, r"has the category 0, but the space says Discrete\(3, start=1\)"),
        (spaces.Discrete(3), 1.5, "has dtype float64 and values that the space's int64 cannot hold"),
        (spaces.MultiDiscrete([2, 3]), np.array([2, 0]), r"has the category \[2 0\]"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, -1]), r"has the category \[ 0 -1\]"),
        (spaces.MultiBinary(3), np.array([1, 0]), r"has shape \(2,\), but the space says \(3,\)"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 0}, r"has no part 'a', but the space says \['a'\]"),
        (spaces.Tuple([spaces.Discrete(2)]), (0, 1), "has 2 parts, but the space says 1"),
        (
            spaces.Dict({"a": box(np.float32, (2, 3))}),
            {"a": np.zeros((3, 2), np.float32)},
            r"has shape \(3, 2\), but the space says \(2, 3\)",
        ),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_and_not_cast_or_misplaced(space, obs, problem):
    with pytest.raises(ValueError, match=problem):
        encode(space, encoded_space(space), obs)


def test_whole_numbers_of_another_dtype_are_taken_where_they_fit():
    space = box(np.uint8, (3,))
    for dtype in (np.int64, np.float64, np.float32):
        encoded = encode(space, encoded_space(space), np.array([0, 7, 255], dtype=dtype))
        assert encoded.dtype == np.uint8
        assert encoded.tolist() == [0, 7, 255]


@pytest.mark.parametrize("obs", [np.zeros(4), np.zeros((2, 5)), np.float32(0.0)])
def test_a_batch_of_another_shape_is_refused_with_the_shape_expected(obs):
    with pytest.raises(ValueError, match=r"must have the shape \[B, 4\], got "):
        encode_batch(box(np.float32, (4,)), obs)


UNSUPPORTED_OBSERVATIONS = {
    "Text": spaces.Text(5),
    "Graph": spaces.Graph(spaces.Discrete(2), spaces.Discrete(2)),
    "Sequence": spaces.Sequence(spaces.Discrete(2)),
    "Dict": spaces.Dict({"text": spaces.Text(5), "fine": spaces.Discrete(2)}),
    "Tuple": spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]),
}


@pytest.mark.parametrize("name", UNSUPPORTED_OBSERVATIONS)
def test_an_unsupported_observation_space_is_refused_in_one_sentence(name):
    with pytest.raises(UserError) as refusal:
        check_spaces("My/Env-v0", UNSUPPORTED_OBSERVATIONS[name], spaces.Discrete(2))
    message = str(refusal.value)
    assert message.startswith(f"env My/Env-v0 has the observation space {name}(")
    assert "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "empty", [spaces.Dict({}), spaces.Tuple([]), spaces.Box(0.0, 1.0, shape=(2, 0), dtype=np.float32)]
)
def test_an_observation_space_without_any_number_in_it_is_refused(empty):
    with pytest.raises(UserError, match="has the observation space"):
        check_spaces("My/Env-v0", empty, spaces.Discrete(2))


@pytest.mark.parametrize("env_id", ["Pendulum-v1", *(f"Trap/{k}Action-v0" for k in ("Box", "Tuple", "Dict"))])
def test_the_refusal_of_an_action_space_names_the_env_the_space_and_what_is_supported(env_id):
    import trap_envs  # noqa: F401

    env = gym.make(env_id)
    with pytest.raises(UserError) as refusal:
        check_spaces(env_id, env.observation_space, env.action_space)
    assert str(refusal.value) == (
        f"env {env_id} has the action space {env.action_space}, "
        "but Q-learning needs a finite one: Discrete(n) is supported."
    )


def test_what_is_no_description_is_refused():
    with pytest.raises(ValueError, match="not a description of a space"):
        rebuild({"kind": "graph"})
