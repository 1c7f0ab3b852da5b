"""Making envs: which implementation, which time limit, and what is refused before anything starts."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import trap_envs
from lit_dqn.envs.border import Border
from lit_dqn.envs.gym import GymEnvs, close_quietly
from lit_dqn.errors import UserError


class WindyCartPole(CartPoleEnv):
    """CartPole with one more constructor argument than its vector implementation has."""

    def __init__(self, wind=0.0, **kwargs):
        super().__init__(**kwargs)


class SameStepCartPole(CartPoleVectorEnv):
    metadata = CartPoleVectorEnv.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}


@pytest.fixture
def register():
    """Register envs for one test."""
    made = []

    def add(env_id, **spec):
        gym.register(env_id, **spec)
        made.append(env_id)

    yield add
    for env_id in made:
        del gym.registry[env_id]


@pytest.fixture
def make():
    """Make a vector env and close it afterwards."""
    made = []

    def vector(num_envs, **options):
        made.append(GymEnvs(**options).make(num_envs))
        return made[-1]

    yield vector
    for envs in made:
        envs.close()


def test_several_copies_of_cartpole_are_its_own_vector_implementation(make):
    envs = make(4, id="CartPole-v1")
    assert type(envs) is CartPoleVectorEnv
    assert (envs.num_envs, envs.max_episode_steps) == (4, 500)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP


@pytest.mark.parametrize(
    ("num_envs", "options"),
    [
        (1, {"id": "CartPole-v1"}),
        (4, {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers.TimeAwareObservation"]}),
        (4, {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers.RecordEpisodeStatistics"]}),
        (4, {"id": "Acrobot-v1"}),
        (4, {"id": "trap_envs:Trap/DiscreteStart1-v0"}),
    ],
)
def test_one_copy_a_wrapped_env_and_an_env_without_a_vector_form_go_behind_the_border(
    make, num_envs, options
):
    envs = make(num_envs, **options)
    assert type(envs) is SyncVectorEnv
    assert len(envs.envs) == num_envs
    assert all(type(env) is Border for env in envs.envs)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP


def test_a_vector_implementation_is_used_only_if_it_takes_every_argument_typed_or_registered(make, register):
    cart = {"entry_point": WindyCartPole, "vector_entry_point": CartPoleVectorEnv}
    register("Test/Windy-v0", **cart)
    register("Test/Registered-v0", kwargs={"wind": 2.0}, **cart)
    known = make(3, id="Test/Windy-v0", kwargs={"sutton_barto_reward": True})
    assert type(known) is CartPoleVectorEnv
    known.reset(seed=0)
    assert known.step(np.zeros(3, dtype=np.int64))[1].tolist() == [0.0] * 3  # the argument has arrived
    assert type(make(3, id="Test/Windy-v0", kwargs={"wind": 1.0})) is SyncVectorEnv
    assert type(make(3, id="Test/Registered-v0")) is SyncVectorEnv


def test_a_vector_implementation_that_resets_in_the_same_step_is_refused(register):
    register("Test/SameStep-v0", entry_point=CartPoleEnv, vector_entry_point=SameStepCartPole)
    with pytest.raises(UserError, match=r"env Test/SameStep-v0 must reset with AutoresetMode.NEXT_STEP, got"):
        GymEnvs(id="Test/SameStep-v0").make(2)


def first_ending(envs, steps):
    """(step, terminated, truncated) of copy 0's first ending under action 1, counted from 1."""
    envs.reset(seed=0)
    action = np.ones(envs.num_envs, dtype=np.int64)
    for step in range(1, steps + 1):
        _, _, terminated, truncated, _ = envs.step(action)
        if terminated[0] or truncated[0]:
            return step, bool(terminated[0]), bool(truncated[0])
    return None


@pytest.mark.parametrize(("limit", "length"), [(None, 200), (1000, 1000), (7, 7)])
def test_max_episode_steps_lengthens_and_shortens_the_envs_own_limit(make, limit, length):
    envs = make(1, id="MountainCar-v0", max_episode_steps=limit)
    assert first_ending(envs, 1001) == (length, False, True)


def test_max_episode_steps_holds_in_a_vector_implementation_too(make):
    assert first_ending(make(3, id="CartPole-v1", max_episode_steps=5), 9) == (5, False, True)


def test_the_time_limit_of_one_vector_replaces_the_env_s(make):
    env = GymEnvs(id="MountainCar-v0", max_episode_steps=1000)
    assert env.time_limit == 1000
    envs = env.make(1, time_limit=30)
    assert first_ending(envs, 40) == (30, False, True)
    envs.close()


def test_the_spaces_are_those_of_the_wrapped_env_and_what_the_network_sees():
    plain = GymEnvs(id="CartPole-v1")
    wrapped = GymEnvs(id="CartPole-v1", wrappers=["gymnasium.wrappers.TimeAwareObservation"])
    assert (plain.observation_space.shape, plain.num_actions) == ((4,), 2)
    assert wrapped.observation_space.shape == (5,)
    frozen = GymEnvs(id="FrozenLake-v1", kwargs={"is_slippery": False})
    assert (frozen.observation_space.shape, frozen.num_actions) == ((16,), 4)
    cards = GymEnvs(id="Blackjack-v1")
    assert (cards.observation_space.shape, cards.observation_space.dtype) == ((32 + 11 + 2,), np.float32)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("env_id", ["Blackjack-v1", "FrozenLake-v1", "Trap/ChainDiscrete-v0"])
def test_observations_that_are_no_box_arrive_flattened_in_a_vector(make, env_id, num_envs):
    envs = make(num_envs, id=env_id)
    obs = envs.reset(seed=1)[0]
    assert obs.dtype == np.float32
    assert obs.shape == (num_envs, *GymEnvs(id=env_id).observation_space.shape)
    assert set(np.unique(obs)) == {0.0, 1.0}
    assert (obs.sum(axis=1) == (3 if env_id == "Blackjack-v1" else 1)).all()


@pytest.mark.parametrize(
    "env_id", [f"Trap/{kind}Action-v0" for kind in ("Box", "Tuple", "MultiDiscrete", "MultiBinary", "Dict")]
)
def test_every_action_space_that_is_not_discrete_is_refused_when_the_envs_are_described(env_id):
    with pytest.raises(UserError, match=rf"^env {env_id} has the action space .* Discrete\(n\) is"):
        GymEnvs(id=env_id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "Cartpole-v1"}, r"^env\.id=Cartpole-v1: Gymnasium has no env .*near names: .*CartPole-v1"),
        ({"id": "CartPole-v9"}, r"near names: .*CartPole-v1"),
        ({"id": "Qwertyuiop-v0"}, r"^env\.id=Qwertyuiop-v0: Gymnasium has no env of that name\.$"),
        ({"id": "trap_envs:Trap/Countin-v0"}, r"near names: .*Trap/Counting-v0"),
        (
            {"id": "no_such_module:X-v0"},
            r"no module 'no_such_module'; is its folder on PYTHONPATH\?",
        ),
        ({"id": "..x:X-v0"}, r"^env\.id=\.\.x:X-v0: importing \.\.x failed: "),
        ({"id": "Trap/RaiseInInit-v0"}, r"could not be made: RuntimeError: trap: planned failure in init"),
        ({"id": "Trap/NoSuch/Slash"}, r"Gymnasium has no env of that name"),
        ({"id": "CartPole-v1", "kwargs": {"bogus": 1}}, r"could not be made: TypeError: .*'bogus'"),
        ({"id": "CartPole-v1", "wrappers": ["TimeLimit"]}, r"env\.wrappers: 'TimeLimit' cannot be imported"),
        (
            {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers.Nope"]},
            r"wrappers\.Nope' cannot be",
        ),
        ({"id": "CartPole-v1", "wrappers": ["gymnasium.Env"]}, r"'gymnasium\.Env' is no gymnasium\.Wrapper"),
        (
            {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers.TimeLimit"]},
            r"TypeError: .*max_epi",
        ),
    ],
)
def test_an_env_that_cannot_be_made_is_refused_by_name_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as refusal:
        GymEnvs(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore:.*render_modes")
def test_a_class_that_is_no_gymnasium_env_is_refused_by_name():
    with pytest.raises(UserError, match=r"env Trap/LegacyApi-v0 could not be made: .*must inherit from"):
        GymEnvs(id="Trap/LegacyApi-v0")


def test_a_missing_box2d_names_the_extra_to_install(register):
    def without_box2d(**_):
        raise gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    register("Test/NoBox2d-v0", entry_point=without_box2d)
    with pytest.raises(UserError, match=r'a package that is missing: type pip install "lit-dqn\[box2d\]"'):
        GymEnvs(id="Test/NoBox2d-v0")


def test_an_env_that_fails_while_closing_warns_and_does_not_raise():
    with pytest.warns(UserWarning, match="closing the env failed: trap: planned failure in close"):
        close_quietly(trap_envs.RaisingEnv(where="close"))


@pytest.mark.parametrize("limit", [0, -5])
def test_a_time_limit_below_one_is_refused_by_name(limit):
    with pytest.raises(ValueError, match="max_episode_steps"):
        GymEnvs(id="CartPole-v1", max_episode_steps=limit)
