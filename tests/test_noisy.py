"""Noisy layers, and when a network draws noise."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from lit_dqn.agents.dqn import DQN
from lit_dqn.agents.iqn import IQN
from lit_dqn.learner import Learner
from lit_dqn.networks.mlp import MLP
from lit_dqn.networks.noisy import NoisyLinear
from lit_dqn.networks.qnetwork import acting_values, without_noise
from lit_dqn.types import Batch


@pytest.mark.parametrize("independent", [False, True])
def test_the_noise_is_factorised_as_in_the_paper(independent):
    layer = NoisyLinear(3, 2)
    layer.independent = independent
    x = torch.randn(4, 3)
    torch.manual_seed(5)
    found = layer(x)
    torch.manual_seed(5)
    into, out = (torch.randn(4 if independent else 1, width).expand(4, -1) for width in (3, 2))
    f = lambda e: math.copysign(math.sqrt(abs(e)), e)  # noqa: E731
    for b in range(4):
        for o in range(2):
            expected = layer.bias[o] + layer.bias_sigma[o] * f(out[b, o].item())
            for i in range(3):
                noise = f(into[b, i].item()) * f(out[b, o].item())
                expected = expected + (layer.weight[o, i] + layer.weight_sigma[o, i] * noise) * x[b, i]
            torch.testing.assert_close(found[b, o], expected)


def test_it_begins_as_the_paper_says():
    layer = NoisyLinear(16, 400)
    assert layer.weight.abs().max() <= 0.25
    assert layer.weight.abs().mean().item() == pytest.approx(0.125, abs=0.01)
    assert (layer.weight_sigma == 0.125).all()
    assert (layer.bias_sigma == 0.125).all()


@pytest.mark.parametrize("independent", [False, True])
def test_a_minibatch_shares_its_noise_unless_observations_are_independent(independent):
    layer = NoisyLinear(3, 2)
    layer.independent = independent
    assert len({tuple(row) for row in layer(torch.ones(5, 3)).tolist()}) == (5 if independent else 1)
    wide = layer(torch.ones(5, 7, 3))
    assert wide.shape == (5, 7, 2)
    assert all(len({tuple(row) for row in rows}) == 1 for rows in wide.tolist())


def test_envs_that_act_at_once_have_noise_of_their_own():
    net = MLP((3,), 2, hidden=[8, 8], noisy=True)
    values = acting_values(net)(torch.ones(5, 3))
    assert len({tuple(row) for row in values.tolist()}) == 5
    assert len({tuple(row) for row in net(torch.ones(5, 3)).q_values.tolist()}) == 1


def test_fresh_noise_at_every_call_and_none_in_evaluation():
    net = MLP((3,), 2, hidden=[8, 8], noisy=True)
    values, obs = acting_values(net), torch.randn(4, 3)
    assert not torch.equal(values(obs), values(obs))
    with without_noise(net):
        quiet = values(obs)
        assert torch.equal(quiet, values(obs))
    assert net.training
    assert not torch.equal(values(obs), quiet)


def test_the_mean_over_the_noise_of_a_layer_is_the_layer_without_it():
    torch.manual_seed(0)
    layer, x = NoisyLinear(4, 3), torch.randn(1, 4)
    layer.independent = True
    mean = layer(x.expand(40_000, 4)).mean(0)
    torch.testing.assert_close(mean, layer.eval()(x)[0], atol=0.02, rtol=0)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("agent", [DQN(), IQN()])
def test_the_head_alone_is_noisy_and_every_sigma_learns(dueling, agent):
    net = MLP((3,), 2, agent.readout, hidden=[8, 8], dueling=dueling, noisy=True)
    sigmas = [name for name, _ in net.named_parameters() if "sigma" in name]
    assert len(sigmas) == (8 if dueling else 4)
    assert all(name.startswith("head.") for name in sigmas)
    before = {name: p.clone() for name, p in net.named_parameters()}
    learner = Learner(net, copy.deepcopy(net).requires_grad_(False), agent, None)
    optimizer = torch.optim.SGD([learner.online.vector], lr=1.0)
    batch = Batch(
        torch.randn(16, 3),
        torch.randint(2, (16,)),
        torch.randn(16),
        torch.full((16,), 0.9),
        torch.randn(16, 3),
        torch.arange(16),
    )
    learner.update(batch, optimizer.step)
    assert all(not torch.equal(before[name], p) for name, p in net.named_parameters() if "sigma" in name)


def test_the_online_and_the_target_net_of_an_update_do_not_share_their_noise():
    net = MLP((3,), 2, hidden=[8], noisy=True)
    twin = copy.deepcopy(net)
    obs = torch.randn(4, 3)
    assert not torch.equal(net(obs).q_values, twin(obs).q_values)
    assert torch.equal(net.eval()(obs).q_values, twin.eval()(obs).q_values)
