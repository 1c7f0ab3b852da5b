"""One gradient step: weights once, torch's own clipping, the target net exactly when it is due."""

from __future__ import annotations

import copy

import pytest
import torch

from lit_dqn.agents.dqn import DQN
from lit_dqn.learner import Learner
from lit_dqn.networks.mlp import MLP
from lit_dqn.optimizers import Adam
from lit_dqn.types import Batch


def network(seed=0, **options):
    torch.manual_seed(seed)
    return MLP((3,), 2, hidden=[8, 8], **options)


def random_batch(size=16, seed=0, scale=1.0, weight=None):
    g = torch.Generator().manual_seed(seed)
    return Batch(
        obs=torch.randn(size, 3, generator=g),
        action=torch.randint(2, (size,), generator=g),
        reward=scale * torch.randn(size, generator=g),
        discount=torch.full((size,), 0.9),
        next_obs=torch.randn(size, 3, generator=g),
        index=torch.arange(size),
        weight=weight,
    )


def learner_of(q_net, max_grad_norm=None, **agent):
    target = copy.deepcopy(q_net).requires_grad_(False)
    return Learner(q_net, target, DQN(**agent), max_grad_norm)


def parameters(net):
    return [p.detach().clone() for p in net.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def no_step():
    pass


@pytest.mark.parametrize("interval", [1, 7])
def test_the_hard_target_is_copied_exactly_every_interval_updates_and_stays_put_between(interval):
    q_net = network()
    learner = learner_of(q_net, target_update_interval=interval)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=0.01)
    expected = parameters(q_net)
    for update in range(1, 23):
        before = parameters(q_net)
        learner.update(random_batch(seed=update), optimizer.step)
        assert not equal(parameters(q_net), before)
        if update % interval == 0:
            expected = parameters(q_net)
        assert equal(parameters(learner.target_net), expected)
        assert learner.updates == update


@pytest.mark.parametrize("interval", [1, 7])
def test_the_soft_target_moves_by_tau_exactly_every_interval_updates(interval):
    q_net, tau = network(), 0.25
    learner = learner_of(q_net, target_update_interval=interval, tau=tau)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=0.01)
    expected = parameters(q_net)
    for update in range(1, 16):
        learner.update(random_batch(seed=update), optimizer.step)
        if update % interval == 0:
            expected = [tau * o + (1 - tau) * t for o, t in zip(parameters(q_net), expected, strict=True)]
        torch.testing.assert_close(parameters(learner.target_net), expected)
    assert not equal(parameters(learner.target_net), parameters(q_net))


def test_the_target_is_due_by_the_count_of_updates_that_a_resumed_run_brings_along():
    q_net = network()
    learner = learner_of(q_net, target_update_interval=7)
    learner.updates = 5
    optimizer = torch.optim.SGD(q_net.parameters(), lr=0.1)
    learner.update(random_batch(seed=1), optimizer.step)
    assert not equal(parameters(learner.target_net), parameters(q_net))
    learner.update(random_batch(seed=2), optimizer.step)
    assert equal(parameters(learner.target_net), parameters(q_net))


def test_the_target_net_shares_no_memory_with_the_online_net_and_never_takes_a_gradient():
    q_net = network()
    learner = learner_of(q_net, target_update_interval=1)
    learner.update(random_batch(), torch.optim.SGD(q_net.parameters(), lr=0.1).step)
    for online, target in zip(q_net.parameters(), learner.target_net.parameters(), strict=True):
        assert online.data_ptr() != target.data_ptr()
        assert target.grad is None
        assert not target.requires_grad


def test_the_module_s_optimizer_moves_every_online_parameter_and_none_of_the_target_net():
    from lit_dqn.module import LitDQN

    q_net = network()
    module = LitDQN(q_net, DQN(), Adam(lr=1.0), lambda *_: None, lambda *_: None)
    before = parameters(q_net)
    optimizer = module.configure_optimizers()
    (vector,) = optimizer.param_groups[0]["params"]
    assert torch.equal(vector, torch.cat([p.flatten() for p in before]))
    vector.grad.fill_(1.0)
    optimizer.step()
    for now, then in zip(parameters(q_net), before, strict=True):
        torch.testing.assert_close(now, then - 1.0)  # Adam's first step is lr long
    assert module.target_net is not q_net
    assert not any(p.requires_grad for p in module.target_net.parameters())
    assert equal(parameters(module.target_net), before)


def gradient(q_net, batch, **options):
    learner = learner_of(q_net, **options)
    out, norm = learner.update(batch, no_step)
    return out, norm, [p.grad.clone() for p in q_net.parameters()]


def test_the_importance_weight_multiplies_each_item_s_loss_once_and_not_what_the_loss_reports():
    q_net, size = network(), 4
    weight = torch.tensor([0.0, 0.5, 1.0, 0.25])
    batch = random_batch(size, weight=weight)
    out, _, found = gradient(q_net, batch)
    expected = [torch.zeros_like(p) for p in q_net.parameters()]
    for i in range(size):
        columns = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, batch.index)
        item = Batch(*(column[i : i + 1] for column in columns))
        alone, _, of_item = gradient(q_net, item)
        torch.testing.assert_close(out.loss[i], alone.loss[0])  # reported without its weight
        torch.testing.assert_close(out.priority[i], alone.priority[0])
        expected = [e + weight[i] * g / size for e, g in zip(expected, of_item, strict=True)]
    torch.testing.assert_close(found, expected)


def test_weights_of_one_are_the_same_as_no_weights():
    q_net = network()
    _, _, without = gradient(q_net, random_batch())
    _, _, ones = gradient(q_net, random_batch(weight=torch.ones(16)))
    assert equal(without, ones)


@pytest.mark.parametrize("max_grad_norm", [0.1, 10.0, 1e6, None])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_gradients_are_clipped_as_torch_clips_them_and_the_norm_before_is_reported(max_grad_norm, scale):
    batch = random_batch(scale=scale)
    q_net = network()
    _, norm, clipped = gradient(q_net, batch, max_grad_norm=max_grad_norm)
    reference = network()
    agent = DQN()
    agent.loss(reference, copy.deepcopy(reference), batch).loss.mean().backward()
    limit = float("inf") if max_grad_norm is None else max_grad_norm
    expected_norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), limit)
    torch.testing.assert_close(norm, expected_norm)
    torch.testing.assert_close(clipped, [p.grad for p in reference.parameters()])
    if max_grad_norm == 0.1:
        after = torch.linalg.vector_norm(torch.cat([g.flatten() for g in clipped]))
        assert after.item() == pytest.approx(0.1, rel=1e-3)


def test_gradients_of_one_update_do_not_leak_into_the_next():
    q_net = network()
    learner = learner_of(q_net)
    learner.update(random_batch(seed=1), no_step)
    learner.update(random_batch(seed=2), no_step)
    found = [p.grad.clone() for p in q_net.parameters()]
    _, _, alone = gradient(q_net, random_batch(seed=2))
    assert equal(found, alone)


def test_the_optimizer_steps_once_per_update_after_the_clipping_and_before_the_target_follows():
    q_net = network()
    learner = learner_of(q_net, max_grad_norm=1e-3, target_update_interval=1)
    norms = []

    def step():
        norms.append(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in q_net.parameters()])))
        with torch.no_grad():
            for p in q_net.parameters():
                p.fill_(0.5)

    learner.update(random_batch(), step)
    assert len(norms) == 1
    assert norms[0].item() == pytest.approx(1e-3)
    assert all((p == 0.5).all() for p in learner.target_net.parameters())


def test_repeated_updates_bring_the_values_to_the_rewards_of_ending_transitions():
    q_net = network()
    learner = learner_of(q_net, target_update_interval=5)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=0.01)
    obs = torch.eye(3)[[0, 1, 2, 0, 1, 2]]
    action = torch.tensor([0, 0, 0, 1, 1, 1])
    reward = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, -2.0])
    batch = Batch(obs, action, reward, torch.zeros(6), obs, torch.arange(6))
    for _ in range(400):
        learner.update(batch, optimizer.step)
    values = q_net(torch.eye(3)).q_values
    torch.testing.assert_close(
        values, torch.tensor([[1.0, 2.0], [-1.0, 0.0], [0.5, -2.0]]), atol=0.02, rtol=0
    )
