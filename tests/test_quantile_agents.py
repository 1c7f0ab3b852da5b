"""QR-DQN and IQN against loops written from the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.agents.quantile_huber import quantile_huber
from lit_dqn.networks.mlp import MLP
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import ImplicitQuantiles, QuantileOutput
from tables import BATCH, batch_of, table

ONLINE = [[[0.1, 0.5, 0.9], [1.0, 0.0, 0.2]], [[0.3, -0.8, 2.0], [0.4, 0.4, -0.4]]]
TARGET = [[[0.0, 1.0, 0.5], [-1.0, 0.3, 0.6]], [[1.5, 0.2, -0.7], [-0.2, 0.9, 0.8]]]


def pair_loss(quantile, tau, target, kappa):
    """rho of the papers, for one quantile and one target."""
    u = target - quantile
    huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
    return abs(tau - (u < 0)) * huber / kappa


def slow_loss(quantiles, taus, targets, kappa):
    return sum(
        sum(pair_loss(q, tau, t, kappa) for t in targets) / len(targets)
        for q, tau in zip(quantiles, taus, strict=True)
    )


def slow_targets(online, target, batch, i, double):
    following = batch["next_state"][i]
    chooser = online if double else target
    best = int(np.argmax([np.mean(z) for z in chooser[following]]))
    return [batch["reward"][i] + batch["discount"][i] * z for z in target[following][best]]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kappa", [1.0, 0.25])
def test_qrdqn_sums_over_its_quantiles_and_averages_over_the_targets(double, kappa):
    agent = QRDQN(num_quantiles=3, kappa=kappa, double=double)
    out = agent.loss(table(agent, ONLINE), table(agent, TARGET), batch_of(**BATCH))
    for i, (state, action) in enumerate(zip(BATCH["state"], BATCH["action"], strict=True)):
        targets = slow_targets(ONLINE, TARGET, BATCH, i, double)
        taken = ONLINE[state][action]
        expected = slow_loss(taken, [1 / 6, 3 / 6, 5 / 6], targets, kappa)
        assert out.loss[i].item() == pytest.approx(expected, rel=1e-5)
        assert out.q_taken[i].item() == pytest.approx(np.mean(taken), rel=1e-5)
        assert out.td_error[i].item() == pytest.approx(abs(np.mean(targets) - np.mean(taken)), rel=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 4), (5, 1), (3, 4), (4, 3)])
def test_the_axes_of_the_loss_are_not_exchanged(sizes):
    n, m = sizes
    random = np.random.default_rng(n * 10 + m)
    quantiles, targets = random.normal(size=(2, n)), 2 * random.normal(size=(2, m))
    taus = random.random((2, n))
    found = quantile_huber(*(torch.tensor(x) for x in (quantiles, taus, targets)), kappa=1.0)
    for i in range(2):
        assert found[i].item() == pytest.approx(slow_loss(quantiles[i], taus[i], targets[i], 1.0))


def test_the_gradient_pulls_a_low_share_s_quantile_up_less_than_it_pushes_it_down():
    quantile = torch.zeros(2, 1, requires_grad=True)
    quantile_huber(quantile, torch.tensor([[0.1]]), torch.tensor([[5.0], [-5.0]]), 1.0).sum().backward()
    assert quantile.grad.flatten().tolist() == pytest.approx([-0.1, 0.9])


def test_quantiles_settle_at_the_shares_of_a_known_distribution():
    torch.manual_seed(0)
    quantiles = torch.zeros(1, 4, requires_grad=True)
    taus = (torch.arange(4) + 0.5).unsqueeze(0) / 4
    optimizer = torch.optim.SGD([quantiles], lr=0.05)
    for step in range(3000):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 3000)
        optimizer.zero_grad()
        quantile_huber(quantiles, taus, torch.rand(1, 64), 0.01).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(quantiles.detach()[0], [0.125, 0.375, 0.625, 0.875], atol=0.03)


class Slope(nn.Module):
    """A head whose quantile at a share is intercept + slope x share, by state and action."""

    def __init__(self, lines, sampled):
        super().__init__()
        self.lines = nn.Parameter(torch.tensor(lines))  # [S, A, 2]
        self.sampled, self.calls = sampled, []

    def forward(self, features, count=None):
        self.calls.append(count)
        taus = self.sampled(len(features), count)  # [B, N]
        lines = torch.einsum("bs,san->ban", features, self.lines)
        quantiles = lines[..., :1] + lines[..., 1:] * taus.unsqueeze(1)  # [B, A, N]
        return QuantileOutput(quantiles.mean(-1), quantiles, taus)


@pytest.mark.parametrize("double", [False, True])
def test_iqn_compares_quantiles_at_its_own_shares_with_the_target_net_s(double):
    def fixed(size, count):
        given = {2: [0.2, 0.7], 3: [0.1, 0.5, 0.6], None: [0.25, 0.75]}[count]
        return torch.tensor([given]).expand(size, -1)

    lines = [[[1.0, 2.0], [0.0, 1.0]], [[0.5, -1.0], [0.2, 3.0]]]
    others = [[[0.0, 4.0], [1.0, -1.0]], [[2.0, 0.5], [-1.0, 0.0]]]
    agent = IQN(num_online_taus=2, num_target_taus=3, double=double)
    online, target = (QNetwork(nn.Identity(), nn.Identity()) for _ in range(2))
    for net, values in ((online, lines), (target, others)):
        net.head = Slope(values, fixed)
    out = agent.loss(online, target, batch_of(**BATCH))
    for i, (state, action) in enumerate(zip(BATCH["state"], BATCH["action"], strict=True)):
        chooser = lines if double else others
        following = BATCH["next_state"][i]
        best = int(np.argmax([a + 0.5 * b for a, b in chooser[following]]))
        a, b = others[following][best]
        targets = [BATCH["reward"][i] + BATCH["discount"][i] * (a + b * t) for t in (0.1, 0.5, 0.6)]
        a, b = lines[state][action]
        expected = slow_loss([a + b * t for t in (0.2, 0.7)], (0.2, 0.7), targets, 1.0)
        assert out.loss[i].item() == pytest.approx(expected, rel=1e-5)
    assert online.head.calls == ([2, None] if double else [2])
    assert target.head.calls == ([3] if double else [3, None])


def test_the_cosine_embedding_is_the_paper_s():
    torch.manual_seed(0)
    readout = ImplicitQuantiles(features=5, num_cosines=4, num_acting=2)
    taus = torch.tensor([[0.0, 0.3], [0.9, 1.0]])
    embedded = readout.embed(taus)
    weight, bias = readout.embedding.weight.detach().numpy(), readout.embedding.bias.detach().numpy()
    for b in range(2):
        for n in range(2):
            cosines = [math.cos(math.pi * i * taus[b, n].item()) for i in range(4)]
            expected = np.maximum(weight @ cosines + bias, 0)
            np.testing.assert_allclose(embedded[b, n].detach(), expected, atol=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
def test_an_implicit_quantile_is_the_head_at_the_features_times_the_embedding(dueling):
    torch.manual_seed(0)
    net = MLP((3,), 2, IQN(num_acting_taus=5).readout, hidden=[8, 6], dueling=dueling)
    obs = torch.randn(4, 3)
    out = net(obs, 7)
    assert out.quantiles.shape == (4, 2, 7)
    features = net.encoder(obs)
    for b in range(4):
        for n in range(7):
            embedded = features[b] * net.head.readout.embed(out.taus[b : b + 1, n : n + 1])[0, 0]
            expected = net.head.raw(embedded.unsqueeze(0))[0, :, 0]
            torch.testing.assert_close(out.quantiles[b, :, n], expected)
    torch.testing.assert_close(out.q_values, out.quantiles.mean(-1))


def test_shares_are_drawn_for_every_observation_and_call_and_are_fixed_in_evaluation():
    net = MLP((3,), 2, IQN(num_acting_taus=4).readout, hidden=[8])
    obs = torch.randn(3, 3)
    one, other = net(obs).taus, net(obs).taus
    assert one.shape == (3, 4)
    assert len(torch.cat([one, other]).unique()) == 24
    assert one.min() >= 0
    assert one.max() < 1
    net.eval()
    assert net(obs).taus.tolist() == [[0.125, 0.375, 0.625, 0.875]] * 3
    assert torch.equal(net(obs).q_values, net(obs).q_values)
