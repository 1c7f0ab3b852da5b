"""The whole family, found by its yaml: every switch does something, every pair of switches works."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import Literal, get_args, get_origin

import pytest
import torch
from gymnasium import spaces
from omegaconf import OmegaConf

from lit_dqn import compose
from lit_dqn.config.build import _options, build, find_class
from lit_dqn.config.compose import Composer, conf_dir, plain
from lit_dqn.errors import UserError
from lit_dqn.learner import Learner
from lit_dqn.preflight import learning_parts

AGENTS = Composer().options()["agent"]
FEW = ["env=gym", "env.id=CartPole-v1", "network.hidden=[8,8]", "buffer.capacity=256", "buffer.batch_size=8"]


def switches(group: str, name: str) -> dict[str, list]:
    """{option: the values of a switch} of a yaml's class: booleans and choices."""
    cls = find_class(group, OmegaConf.load(conf_dir() / group / f"{name}.yaml")._target_)
    found: dict[str, list] = {}
    for option, (hint, _) in _options(cls).items():
        if hint is bool:
            found[f"{group}.{option}"] = [False, True]
        elif get_origin(hint) is Literal:
            found[f"{group}.{option}"] = list(get_args(hint))
    return found


def factors(agent: str) -> dict[str, list]:
    return {
        **switches("agent", agent),
        **switches("network", "mlp"),
        "buffer": ["uniform", "prioritized"],
        "buffer.n_step": [1, 3],
        "agent.tau": [1.0, 0.5],
        "optimizer": ["adam", "rmsprop"],
    }


def is_legal(chosen: dict) -> bool:
    return not (chosen.get("agent.double") and chosen.get("agent.munchausen"))


def pairs(row: dict) -> set[frozenset]:
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


def legal_pairs(agent: str) -> set[frozenset]:
    names = factors(agent)
    every = (
        {a: x, b: y}
        for a, b in itertools.combinations(names, 2)
        for x, y in itertools.product(names[a], names[b])
    )
    return {frozenset(pair.items()) for pair in every if is_legal(pair)}


def covering(agent: str) -> list[dict]:
    """Few combinations in which every legal pair of values of two switches occurs."""
    missing, rows = legal_pairs(agent), []
    while missing:
        row = dict(min(missing, key=lambda pair: sorted(map(str, pair))))
        for name, values in factors(agent).items():
            if name not in row:
                fits = [value for value in values if is_legal(row | {name: value})]
                row[name] = max(fits, key=lambda v: len(pairs(row | {name: v}) & missing))
        rows.append(row)
        missing -= pairs(row)
    return rows


ROWS = [(agent, row) for agent in AGENTS for row in covering(agent)]


@functools.cache
def composed(agent: str, buffer: str, optimizer: str):
    return plain(compose([*FEW, f"agent={agent}", f"buffer={buffer}", f"optimizer={optimizer}"]))


def config_of(agent: str, row: dict) -> dict:
    """The configuration with a row's values; composing each anew would take most of the test."""
    groups = {"buffer": "uniform", "optimizer": "adam"} | {k: v for k, v in row.items() if "." not in k}
    config = copy.deepcopy(composed(agent, groups["buffer"], groups["optimizer"]))
    for name, value in row.items():
        if "." in name:
            group, option = name.split(".")
            config[group][option] = value
    return config


class Sizes:
    """What `learning_parts` asks of an env."""

    observation_space = spaces.Box(-1.0, 1.0, (4,))
    num_actions = 3
    action_mask = None


def first_updates(config: dict, count: int = 3) -> torch.Tensor:
    """The numbers of the first updates of a configuration, on the same made-up rows."""
    torch.manual_seed(0)
    agent, q_net, replay = learning_parts(config, Sizes())
    generator = torch.Generator().manual_seed(1)
    for step in range(30):
        obs = torch.randn(4, 4, generator=generator).numpy()
        action = torch.randint(3, (4,), generator=generator).numpy()
        reward = torch.randn(4, generator=generator).numpy()
        ended, valid = (torch.tensor([flag] * 4).numpy() for flag in (step % 7 == 6, step % 7 != 0))
        replay.add(obs, action, reward, ended, ended, valid)
    target = copy.deepcopy(q_net).requires_grad_(False)
    optimizer = build("optimizer", config["optimizer"], trusted=True)
    learner = Learner(q_net, target, agent, optimizer.max_grad_norm)
    learner._gradient = learner._set_gradient  # recording takes longer than these few updates
    learner.target.vector.data += 0.3 * torch.randn(learner.target.vector.shape, generator=generator)
    stepper = optimizer.build([learner.online.vector])
    assert replay.can_sample()
    numbers = []
    for _ in range(count):
        (minibatch,) = replay.sample(1).minibatches()
        out, norm = learner.update(minibatch, stepper.step)
        replay.update_priorities(minibatch.index.unsqueeze(0), out.priority.unsqueeze(0))
        numbers += [out.loss, out.td_error, out.priority, out.q_taken, norm.unsqueeze(0)]
        assert (out.priority >= 0).all()
    return torch.cat([*numbers, learner.online.vector.detach(), learner.target.vector.detach()])


@pytest.mark.parametrize(("agent", "row"), ROWS, ids=[f"{a}-{i}" for i, (a, _) in enumerate(ROWS)])
def test_every_pair_of_switches_trains(agent, row):
    config = config_of(agent, row)
    config["agent"]["target_update_interval"] = 2
    assert first_updates(config).isfinite().all()


@pytest.mark.parametrize("agent", AGENTS)
def test_the_pairs_are_all_there_are(agent):
    assert legal_pairs(agent) == set().union(*(pairs(row) for name, row in ROWS if name == agent))
    assert len([name for name, _ in ROWS if name == agent]) <= 16


@pytest.mark.parametrize(
    ("agent", "name", "value"),
    [(agent, name, value) for agent in AGENTS for name, v in factors(agent).items() for value in v[1:]],
)
def test_every_switch_changes_the_first_updates(agent, name, value):
    config, other = (config_of(agent, {name: v}) for v in (factors(agent)[name][0], value))
    for c in (config, other):
        c["agent"]["target_update_interval"] = 2
    before, after = first_updates(config), first_updates(other)
    assert before.shape != after.shape or not torch.equal(before, after)


@pytest.mark.parametrize("agent", [a for a in AGENTS if "agent.munchausen" in factors(a)])
def test_double_with_munchausen_is_refused_by_name(agent):
    with pytest.raises(UserError, match=r"agent\.double=true does not go with agent\.munchausen=true"):
        compose(["env=cartpole", f"agent={agent}", "agent.double=true", "agent.munchausen=true"])


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["agent=c51", "agent.munchausen=true"], "agent.munchausen"),
        (["agent=c51", "agent.v_min=5", "agent.v_max=5"], r"agent\.v_min must be below agent\.v_max"),
        (["agent=c51", "agent.num_atoms=1"], "agent.num_atoms"),
        (["agent=qrdqn", "agent.num_quantiles=0"], "agent.num_quantiles"),
        (["agent=iqn", "agent.kappa=0"], "agent.kappa"),
        (["agent=dqn", "agent.num_atoms=51"], "agent.num_atoms"),
        (["agent=dqn", "agent.munchausen_floor=0.5"], "agent.munchausen_floor"),
    ],
)
def test_what_an_agent_has_not_is_refused_by_name(typed, said):
    with pytest.raises(UserError, match=said):
        compose(["env=cartpole", *typed])
