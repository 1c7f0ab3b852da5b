"""A network whose parameters are views of one vector is the network it was."""

from __future__ import annotations

import copy

import pytest
import torch

from lit_dqn.agents.dqn import DQN
from lit_dqn.errors import UserError
from lit_dqn.learner import Learner
from lit_dqn.module import LitDQN
from lit_dqn.networks.flat_parameters import FlatParameters
from lit_dqn.networks.mlp import MLP
from lit_dqn.optimizers import Adam
from lit_dqn.types import Batch


@pytest.fixture
def net():
    torch.manual_seed(0)
    return MLP((3,), 2, hidden=[4, 5], dueling=True)


def test_the_values_stay_and_the_vector_holds_them_in_the_module_s_order(net):
    obs = torch.randn(6, 3)
    before, values = [p.detach().clone() for p in net.parameters()], net(obs).q_values
    flat = FlatParameters(net)
    assert torch.equal(net(obs).q_values, values)
    assert torch.equal(flat.vector, torch.cat([p.flatten() for p in before]))
    assert [p.shape for p in net.parameters()] == [p.shape for p in before]


def test_what_is_written_to_the_vector_is_in_the_network_and_the_other_way_round(net):
    flat = FlatParameters(net)
    with torch.no_grad():
        flat.vector.fill_(0.25)
    assert all((p == 0.25).all() for p in net.parameters())
    torch.manual_seed(1)
    other = MLP((3,), 2, hidden=[4, 5], dueling=True)
    net.load_state_dict(other.state_dict())
    assert torch.equal(flat.vector, torch.cat([p.flatten() for p in other.parameters()]))


def test_gradients_are_those_of_backward_one_by_one(net):
    obs = torch.randn(6, 3)
    reference = copy.deepcopy(net)
    reference(obs).q_values.square().sum().backward()
    flat = FlatParameters(net)
    loss = net(obs).q_values.square().sum()
    for _ in range(2):  # set, not added
        flat.set_gradient(torch.autograd.grad(loss, flat.trainable, retain_graph=True))
    for found, expected in zip(net.parameters(), reference.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
    assert flat.vector.grad is flat.gradient


def test_a_frozen_network_gets_no_gradients(net):
    FlatParameters(net.requires_grad_(False))
    assert all(p.grad is None and not p.requires_grad for p in net.parameters())


def test_a_frozen_part_stays_as_it_is_while_the_rest_learns(net):
    net.encoder.requires_grad_(False)
    target = copy.deepcopy(net).requires_grad_(False)
    before = [p.detach().clone() for p in net.parameters()]
    learner = Learner(net, target, DQN(), None)
    optimizer = Adam(lr=0.1).build([learner.online.vector])
    g = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(8, 3, generator=g), torch.randn(8, 3, generator=g)
    action, ones = torch.arange(8) % 2, torch.ones(8)
    for _ in range(3):
        learner.update(Batch(obs, action, ones, 0.9 * ones, next_obs, action), optimizer.step)
    for now, then in zip(net.parameters(), before, strict=True):
        assert torch.equal(now, then) != now.requires_grad


def test_an_unused_parameter_gets_a_gradient_of_zeros():
    class WithSpare(MLP):
        def __init__(self):
            super().__init__((3,), 2, hidden=[4])
            self.spare = torch.nn.Parameter(torch.ones(2))

    net = WithSpare()
    learner = Learner(net, copy.deepcopy(net).requires_grad_(False), DQN(), None)
    action, ones = torch.zeros(4, dtype=torch.int64), torch.ones(4)
    learner.update(Batch(torch.randn(4, 3), action, ones, ones, torch.randn(4, 3), action), lambda: None)
    assert net.spare.grad.tolist() == [0.0, 0.0]


def test_parameters_of_several_dtypes_are_refused(net):
    net.head.double()
    with pytest.raises(UserError, match=r"one dtype, got torch\.float32 and torch\.float64"):
        FlatParameters(net)


def test_the_module_lays_its_parameters_out_anew_where_the_optimizer_is_made(net):
    module = LitDQN(net, DQN(), Adam(lr=1.0), lambda *_: None, lambda *_: None)
    for p in module.parameters():
        p.data = p.data.clone()  # as moving to a device does
    optimizer = module.configure_optimizers()
    before = [p.detach().clone() for p in net.parameters()]
    module.learner.online.gradient.fill_(1.0)
    optimizer.step()
    for now, then in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(now.detach(), then - 1.0)


def test_laying_out_again_leaves_the_first_vector_behind(net):
    first = FlatParameters(net)
    second = FlatParameters(net)
    with torch.no_grad():
        first.vector.zero_()
    assert torch.equal(second.vector, torch.cat([p.flatten() for p in net.parameters()]))
    assert second.vector.abs().sum() > 0
