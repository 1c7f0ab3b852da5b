"""Munchausen targets against numbers worked out with plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from lit_dqn.agents.dqn import DQN
from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.errors import UserError
from tables import batch_of, table

TARGET = [[1.0, 2.0], [0.5, 0.2]]
BATCH = {
    "state": [0, 0, 1],
    "action": [0, 1, 1],
    "reward": [0.3, 1.0, -0.7],
    "discount": [0.9, 0.0, 0.729],
    "next_state": [1, 1, 0],
}


def log_policy(q, tau):
    top = max(q)
    total = sum(math.exp((x - top) / tau) for x in q)
    return [(x - top) / tau - math.log(total) for x in q]


def slow_target(i, tau, alpha, floor, values=TARGET):
    """Eq. (1) for one transition; `values` [S, A] are what is averaged."""
    logs = log_policy(TARGET[BATCH["state"][i]], tau)
    bonus = alpha * min(0.0, max(floor, tau * logs[BATCH["action"][i]]))
    following = BATCH["next_state"][i]
    soft = sum(
        math.exp(log) * (value - tau * log)
        for log, value in zip(log_policy(TARGET[following], tau), values[following], strict=True)
    )
    return BATCH["reward"][i] + bonus + BATCH["discount"][i] * soft


@pytest.mark.parametrize(("tau", "alpha", "floor"), [(0.03, 0.9, -1.0), (0.5, 0.9, -0.2), (2.0, 0.0, -1.0)])
def test_the_target_of_dqn_is_the_paper_s(tau, alpha, floor):
    agent = DQN(munchausen=True, munchausen_tau=tau, munchausen_alpha=alpha, munchausen_floor=floor)
    nets = [table(agent, [[[q] for q in row] for row in rows]) for rows in ([[0.0, 0.0], [0.0, 0.0]], TARGET)]
    out = agent.loss(*nets, batch_of(**BATCH))
    for i in range(3):
        assert out.td_error[i].item() == pytest.approx(abs(slow_target(i, tau, alpha, floor)), rel=1e-5)


def test_an_action_the_policy_would_never_take_costs_no_more_than_the_floor():
    agent = DQN(munchausen=True)
    q = torch.tensor([[0.0, 100.0]])
    assert agent.log_policy_bonus(q, torch.tensor([0])).item() == pytest.approx(-0.9)
    assert agent.log_policy_bonus(q, torch.tensor([1])).item() == pytest.approx(0.0)


def test_every_quantile_of_qrdqn_gets_the_target_of_its_own():
    spread = [-0.5, 0.0, 0.5]
    agent = QRDQN(num_quantiles=3, munchausen=True, munchausen_tau=0.5)
    online = table(agent, [[[0.0] * 3] * 2] * 2)
    target = table(agent, [[[q + s for s in spread] for q in row] for row in TARGET])
    found = agent._targets(online, target, batch_of(**BATCH))
    for i in range(3):
        for j, s in enumerate(spread):
            shifted = [[q + s for q in row] for row in TARGET]
            assert found[i, j].item() == pytest.approx(slow_target(i, 0.5, 0.9, -1.0, shifted), rel=1e-5)


def test_iqn_takes_the_policy_from_the_mean_of_its_acting_quantiles():
    agent = IQN(num_target_taus=3, munchausen=True, munchausen_tau=0.5)
    target = table(agent, [[[q] for q in row] for row in TARGET])
    with torch.no_grad():  # an embedding of ones: every quantile is the value itself
        target.head.readout.embedding.weight.zero_()
        target.head.readout.embedding.bias.fill_(1.0)
    found = agent._targets(target, target, batch_of(**BATCH))
    for i in range(3):
        assert found[i].tolist() == pytest.approx([slow_target(i, 0.5, 0.9, -1.0)] * 3, rel=1e-5)


@pytest.mark.parametrize("agent", [DQN, QRDQN, IQN])
def test_double_and_munchausen_together_are_refused(agent):
    with pytest.raises(UserError, match=r"agent\.double=true does not go with agent\.munchausen=true"):
        agent(double=True, munchausen=True)


@pytest.mark.parametrize("agent", [DQN, QRDQN, IQN])
def test_no_gradient_reaches_the_target_net(agent):
    agent = agent(munchausen=True)
    outputs = agent.readout(2).outputs
    nets = [table(agent, torch.randn(2, 2, outputs).tolist()) for _ in range(2)]
    agent.loss(*nets, batch_of(**BATCH)).loss.sum().backward()
    assert all(p.grad is None for p in nets[1].parameters())
    assert nets[0].head.raw_outputs.grad.abs().sum() > 0
