"""What heads and readouts give, for every agent there is a yaml of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lit_dqn.agents.c51 import C51
from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.networks.heads import DuelingHead, PlainHead
from lit_dqn.networks.mlp import MLP


def test_a_categorical_value_is_the_mean_over_its_atoms():
    torch.manual_seed(0)
    net = MLP((3,), 2, C51(num_atoms=4, v_min=-1.0, v_max=2.0).readout, hidden=[8])
    obs = torch.randn(5, 3)
    out = net(obs)
    assert out.atoms.tolist() == [-1.0, 0.0, 1.0, 2.0]
    raw = net.head.raw(net.encoder(obs)).detach().numpy()
    for b in range(5):
        for a in range(2):
            p = np.exp(raw[b, a]) / np.exp(raw[b, a]).sum()
            np.testing.assert_allclose(out.log_probabilities[b, a].detach(), np.log(p), atol=1e-5)
            assert out.q_values[b, a].item() == pytest.approx(p @ [-1, 0, 1, 2], abs=1e-5)


def test_a_quantile_value_is_the_mean_of_its_quantiles_at_the_midpoints():
    net = MLP((3,), 2, QRDQN(num_quantiles=4).readout, hidden=[8])
    out = net(torch.randn(5, 3))
    assert out.taus.tolist() == [[0.125, 0.375, 0.625, 0.875]]
    torch.testing.assert_close(out.q_values, out.quantiles.sum(2) / 4)


@pytest.mark.parametrize("agent", [C51(num_atoms=5), QRDQN(num_quantiles=5)])
def test_a_dueling_head_centres_the_advantages_of_each_output_by_itself(agent):
    torch.manual_seed(0)
    head = DuelingHead(4, 8, 3, agent.readout)
    features = torch.randn(6, 4)
    raw = head.raw(features)
    assert raw.shape == (6, 3, 5)
    torch.testing.assert_close(raw.mean(dim=1), head.value(features))
    advantage = head.advantage(features).view(6, 3, 5)
    for a in range(3):
        centred = advantage[:, a] - advantage.sum(dim=1) / 3
        torch.testing.assert_close(raw[:, a], head.value(features) + centred)


@pytest.mark.parametrize("head", [PlainHead, DuelingHead])
def test_outputs_of_an_action_lie_side_by_side(head):
    plain = head(4, 8, 3, QRDQN(num_quantiles=5).readout)
    with torch.no_grad():
        last = (plain.values if head is PlainHead else plain.advantage)[-1]
        last.weight.zero_()
        last.bias.copy_(torch.arange(15.0))
    raw = plain.raw(torch.zeros(1, 4))[0]
    assert torch.equal((raw[1] - raw[0]).round(decimals=4), torch.full((5,), 5.0))


@pytest.mark.parametrize("dueling", [False, True])
def test_layer_norm_stands_before_every_relu_and_nowhere_else(dueling):
    net = MLP((3,), 2, hidden=[8, 7, 6], dueling=dueling, layer_norm=True)
    widths = [m.normalized_shape[0] for m in net.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert widths == [8, 7, 6, *([6] if dueling else [])]
    hidden = net.encoder.layers[:2](torch.randn(4, 3))
    torch.testing.assert_close(hidden.mean(1), torch.zeros(4), atol=1e-5, rtol=0)
    assert math.isclose(hidden.var(1, unbiased=False).mean().item(), 1.0, abs_tol=1e-2)


@pytest.mark.parametrize("agent", [C51(), QRDQN(), IQN()])
@pytest.mark.parametrize("size", [0, 1, 6])
def test_every_readout_gives_one_value_per_action(agent, size):
    net = MLP((2, 3), 4, agent.readout, hidden=[8])
    assert net(torch.randn(size, 2, 3)).q_values.shape == (size, 4)
