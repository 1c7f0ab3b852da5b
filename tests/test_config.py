"""The configuration: each yaml works, what is typed wins, each value has one home."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from conftest import TINY
from lit_dqn import compose, train
from lit_dqn.config.compose import Composer, conf_dir, folder_name, plain, register_resolvers
from lit_dqn.errors import UserError

CONF = conf_dir()
YAMLS = sorted(CONF.rglob("*.yaml"))
OPTIONS = Composer().options()
CHOICES = [f"{group}={name}" for group, names in OPTIONS.items() if group != "tuned" for name in names]
IMAGES = ["env=gym", "env.id=trap_envs:Trap/FrameId-v0", "+env.kwargs.shape=[36,36]"]
NEEDED = {
    "env=gym": ["env.id=CartPole-v1"],
    **dict.fromkeys(("network=nature_cnn", "network=impala"), IMAGES),
    **dict.fromkeys(("experiment=nature_dqn", "experiment=btr"), IMAGES),
}
"""What a choice cannot do without."""


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_and_trains_a_round(choice, tmp_path):
    budget = ["total_env_steps=60", "evaluation.episodes=0", "experience.num_envs=1"]
    config = compose([*TINY, *budget, choice, *NEEDED.get(choice, [])])
    result = train(config, tmp_path / "run")
    assert result["finished"]
    assert result["updates"] >= 1


@pytest.mark.parametrize("recipe", OPTIONS["tuned"])
def test_a_tuned_recipe_comes_with_its_env_and_agent(recipe):
    env, _, agent = recipe.rpartition("_")
    config = compose([f"env={env}", f"agent={agent}"])
    for key, value in flat(OmegaConf.to_container(OmegaConf.load(CONF / "tuned" / f"{recipe}.yaml"))):
        assert OmegaConf.select(config, key) == value


def flat(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@pytest.mark.parametrize("yaml", YAMLS, ids=lambda p: str(p.relative_to(CONF)))
def test_a_yaml_is_a_screen_and_published_values_name_their_source(yaml):
    text = yaml.read_text()
    assert len(text.splitlines()) <= 25 or yaml.name == "config.yaml"
    if yaml.parent.name == "tuned":
        assert re.search(r"^# .*(zoo|doi:|arXiv:|et al)", text, re.MULTILINE)


@pytest.mark.parametrize(("order", "seed"), [("[base, _self_]", 1), ("[_self_, base]", 2)])
def test_of_a_yaml_and_its_defaults_the_later_one_wins(tmp_path, order, seed):
    (tmp_path / "main.yaml").write_text(f"defaults: {order}\nseed: 1\n")
    (tmp_path / "base.yaml").write_text("seed: 2\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert hydra_compose("main").seed == seed


def test_a_file_that_an_interpolation_chooses_cannot_choose_groups(tmp_path):
    for folder in ("net", "recipe"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b"):
        (tmp_path / "net" / f"{name}.yaml").write_text(f"name: {name}\n")
    (tmp_path / "main.yaml").write_text("defaults:\n  - net: a\n  - recipe: ${net}_x\n")
    (tmp_path / "recipe" / "a_x.yaml").write_text("defaults:\n  - override /net: b\n")
    with (
        initialize_config_dir(str(tmp_path), version_base="1.3"),
        pytest.raises(HydraException, match="Default List Overrides are not allowed"),
    ):
        hydra_compose("main")


def test_typed_values_win_over_the_recipe():
    typed = ["optimizer.lr=0.5", "total_env_steps=7000", "network.hidden=[3]", "gamma=0.5"]
    config = compose(["env=cartpole", *typed])
    assert (config.optimizer.lr, config.total_env_steps, config.gamma) == (0.5, 7000, 0.5)
    assert config.network.hidden == [3]


@pytest.mark.parametrize("typed", ["optimizer=rmsprop", "exploration=constant", "network=mlp"])
def test_a_typed_group_is_taken_without_the_recipes_values_for_another_choice(typed):
    group, _, name = typed.partition("=")
    own = OmegaConf.load(CONF / group / f"{name}.yaml")
    assert compose(["env=cartpole", typed])[group] == own
    assert compose(["env=cartpole", typed]).buffer == compose(["env=cartpole"]).buffer


def test_another_buffer_than_the_recipes_keeps_its_sizes_but_not_its_kind():
    recipe = compose(["env=lunarlander"]).buffer
    chosen = compose(["env=lunarlander", "buffer=prioritized", "buffer.batch_size=7"]).buffer
    assert chosen._target_.endswith("PrioritizedReplay")
    same = recipe.keys() - {"_target_", "batch_size"}
    assert {key: chosen[key] for key in same} == {key: recipe[key] for key in same}
    assert (chosen.n_step, chosen.batch_size) == (recipe.n_step, 7)
    assert recipe.n_step > 1


def test_a_class_that_passes_options_on_takes_those_of_its_base_class_and_checks_them():
    for word, message in (("buffer.batch_size=0", r"buffer\.batch_size"), ("buffer.eps=0", r"buffer\.eps")):
        with pytest.raises(UserError, match=message):
            compose(["buffer=prioritized", word])
    with pytest.raises(UserError, match=r"buffer\.batchsize"):
        compose(["buffer=prioritized", "+buffer.batchsize=3"])


def test_a_recipe_can_be_typed_or_left_out():
    assert compose(["env=cartpole", "tuned=acrobot_dqn"]).buffer == compose(["env=acrobot"]).buffer
    assert compose(["env=cartpole", "tuned=none"]).buffer == OmegaConf.load(CONF / "buffer" / "uniform.yaml")


def test_defaults_fit_a_run_of_two_thousand_steps():
    config = compose(["env=gym", "env.id=CartPole-v1", "total_env_steps=2000"])
    assert config.experience.learning_starts <= 1000


def test_no_option_is_stated_in_two_groups():
    config = plain(compose(["env=cartpole"]))
    homes: dict[str, list[str]] = {}
    for group, values in config.items():
        for name in values if isinstance(values, dict) else [group]:
            homes.setdefault(name, []).append(group)
    # interval, episodes ... mean another thing in each group; a shared quantity has one home.
    shared = {"gamma", "seed", "n_step", "batch_size", "capacity", "lr", "learning_starts", "total_env_steps"}
    assert {name: groups for name, groups in homes.items() if name in shared and len(groups) > 1} == {}


def test_a_configuration_made_by_hand_is_checked_when_it_is_trained(tmp_path):
    config = compose(TINY)
    config.gamma = 3.0
    with pytest.raises(UserError, match="gamma must be <= 1"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_folders_name_has_letters_digits_and_harmless_signs_alone():
    name = folder_name("agent.double=true,network.hidden=[64, 64],env.id=mod:Trap/X-v0")
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert len(folder_name("x" * 500)) <= 120


@pytest.mark.parametrize("key", ["run", "sweep"])
def test_twenty_folders_of_one_second_have_twenty_names(key):
    register_resolvers()
    pattern = OmegaConf.load(CONF / "config.yaml").hydra._get_node(key)
    now = datetime(2026, 1, 2, 3, 4, 5)
    OmegaConf.register_new_resolver("now", now.strftime, replace=True)
    names = {OmegaConf.create(OmegaConf.to_container(pattern)).dir for _ in range(20)}  # one cache each
    assert len(names) == 20
    assert all(re.fullmatch(r"outputs/2026-01-02/03-04-05-[0-9a-f]{8}", name) for name in names)


# A user's own folder.

OWN_MODULE = """
from typing import Annotated
from annotated_types import Ge
from lit_dqn.agents.dqn import DQN
from lit_dqn.networks.mlp import MLP

class Narrow(MLP):
    def __init__(self, obs_shape, num_actions, *, width: Annotated[int, Ge(1)] = 8) -> None:
        super().__init__(obs_shape, num_actions, hidden=[width])

class PassingOn(MLP):
    def __init__(self, *objects, **options) -> None:
        super().__init__(*objects, **options)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of yaml, and a module beside it."""
    (tmp_path / "own_parts.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "network/narrow.yaml": "_target_: own_parts.Narrow\nwidth: 8\n",
        "network/passing_on.yaml": "_target_: own_parts.PassingOn\nhidden: [8]\n",
        "env/cartpole.yaml": "defaults: [_gym, _self_]\nid: CartPole-v0\n",
        "agent/slow.yaml": "defaults: [dqn, _self_]\ntarget_update_interval: 777\n",
        "tuned/cartpole_slow.yaml": "# @package _global_\ngamma: 0.25\n",
        "experiment/mine.yaml": (
            "# @package _global_\ndefaults: [{override /agent: slow}, {override /env: cartpole}]\nseed: 5\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / "yaml" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Composer(str(tmp_path / "yaml"))


def test_an_own_class_from_an_own_yaml_is_checked_and_trains(own, tmp_path):
    config = own.compose([*TINY[:1], *TINY[2:], "network=narrow", "network.width=4"])
    assert train(config, tmp_path / "run")["finished"]
    with pytest.raises(
        UserError, match="network Narrow gives one value per action, but agent C51 reads more"
    ):
        train(own.compose([*TINY[:1], *TINY[2:], "network=narrow", "agent=c51"]), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match=r"network.width must be >= 1, got 0"):
        own.compose(["network=narrow", "network.width=0"])


def test_an_own_network_that_passes_its_objects_on_takes_those_of_its_base_class(own, tmp_path):
    config = own.compose([*TINY, "total_env_steps=100", "network=passing_on", "agent=c51"])
    assert train(config, tmp_path / "run")["finished"]
    with pytest.raises(UserError, match=r"unknown option network.widht; did you mean network.width\?"):
        own.compose(["network=narrow", "network.widht=3"])


def test_an_own_yaml_adds_a_choice_and_wins_over_ours_of_the_same_name(own):
    assert own.compose([]).env.id == "CartPole-v0"
    assert "slow" in own.options()["agent"]
    assert own.compose(["agent=slow"]).agent.target_update_interval == 777


def test_a_recipe_follows_an_experiments_choice_of_the_agent(own):
    config = own.compose(["experiment=mine"])
    assert (config.agent.target_update_interval, config.gamma) == (777, 0.25)
    assert own.compose(["experiment=mine", "gamma=0.75"]).gamma == 0.75
