"""A network whose parameters are views of one vector is the network it was."""

from __future__ import annotations

import copy

import pytest
import torch

from lit_dqn.networks.flat_parameters import FlatParameters
from lit_dqn.networks.mlp import MLP


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
        flat.set_gradient(torch.autograd.grad(loss, flat.parameters, retain_graph=True))
    for found, expected in zip(net.parameters(), reference.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
    assert flat.vector.grad is flat.gradient


def test_a_frozen_network_gets_no_gradients(net):
    FlatParameters(net.requires_grad_(False))
    assert all(p.grad is None and not p.requires_grad for p in net.parameters())


def test_laying_out_again_leaves_the_first_vector_behind(net):
    first = FlatParameters(net)
    second = FlatParameters(net)
    with torch.no_grad():
        first.vector.zero_()
    assert torch.equal(second.vector, torch.cat([p.flatten() for p in net.parameters()]))
    assert second.vector.abs().sum() > 0
