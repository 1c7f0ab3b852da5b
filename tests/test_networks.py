"""The networks: shapes in, action values out."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from lit_dqn.networks.heads import DuelingHead
from lit_dqn.networks.mlp import MLP
from lit_dqn.networks.qnetwork import acting_values


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (5, 4, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("batch", [0, 1, 6])
def test_observations_of_any_shape_give_one_value_per_action(dueling, shape, dtype, batch):
    net = MLP(shape, 3, hidden=[8, 8], dueling=dueling)
    values = net(torch.ones(batch, *shape).to(dtype)).q_values
    assert values.shape == (batch, 3)
    assert values.dtype == torch.float32


@pytest.mark.parametrize("hidden", [[7], [7, 5], [7, 5, 3]])
def test_the_hidden_widths_are_those_given_the_last_of_them_in_the_head(hidden):
    net = MLP((4,), 2, hidden=hidden)
    weights = [tuple(p.shape) for name, p in net.named_parameters() if name.endswith("weight")]
    widths = [4, *hidden, 2]
    assert weights == [(after, before) for before, after in pairwise(widths)]


def test_each_stream_of_a_dueling_head_has_the_last_width():
    net = MLP((4,), 3, hidden=[7, 5], dueling=True)
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters() if name.endswith("weight")}
    assert list(shapes.values()) == [(7, 4), (5, 7), (1, 5), (5, 7), (3, 5)]


def test_a_dueling_value_is_the_value_plus_the_centred_advantages():
    torch.manual_seed(0)
    head = DuelingHead(4, 8, 3)
    features = torch.randn(5, 4)
    values = head(features).q_values
    value, advantage = head.value(features), head.advantage(features)  # one output per action: [B, A x 1]
    torch.testing.assert_close(values.mean(dim=1, keepdim=True), value)
    torch.testing.assert_close(values - value, advantage - advantage.mean(dim=1, keepdim=True))
    with torch.no_grad():
        head.advantage[-1].bias += 100.0
    torch.testing.assert_close(head(features).q_values, values, atol=1e-4, rtol=0)


def test_a_dueling_head_with_a_single_action_is_its_value_stream():
    head = DuelingHead(4, 8, 1)
    features = torch.randn(5, 4)
    torch.testing.assert_close(head(features).q_values, head.value(features))


def test_bytes_are_scaled_to_one_and_floats_are_taken_as_they_are():
    net = MLP((2,), 2, hidden=[8])
    image = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8)
    torch.testing.assert_close(net(image).q_values, net(image.float() / 255).q_values)
    assert not torch.allclose(net(image).q_values, net(image.float()).q_values)


def test_a_small_network_computes_what_its_weights_say():
    net = MLP((2,), 2, hidden=[2])
    first, last = net.head.values[0], net.head.values[2]
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        first.bias.copy_(torch.tensor([0.0, 1.0]))
        last.weight.copy_(torch.tensor([[2.0, 3.0], [0.0, 1.0]]))
        last.bias.copy_(torch.tensor([0.5, 0.0]))
    # hidden = relu([x, 1 - y])
    assert net(torch.tensor([[1.0, 0.5], [-4.0, 2.0]])).q_values.tolist() == [[4.0, 0.5], [0.5, 0.0]]


def test_acting_needs_no_gradient_and_follows_the_weights():
    net = MLP((3,), 2, hidden=[8])
    values = acting_values(net)
    obs = torch.randn(4, 3)
    before = values(obs)
    assert not before.requires_grad
    assert torch.equal(before, net(obs).q_values)
    with torch.no_grad():
        net.head.values[2].bias += 1.0
    torch.testing.assert_close(values(obs), before + 1.0)


@pytest.mark.parametrize("dueling", [False, True])
def test_every_parameter_takes_part_in_the_values(dueling):
    torch.manual_seed(1)
    net = MLP((6,), 3, hidden=[16, 16], dueling=dueling)
    (net(torch.randn(64, 6)).q_values * torch.arange(3.0)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    assert sum(p.numel() for p in net.parameters()) == sum(
        math.prod(p.shape) for p in net.state_dict().values()
    )


@pytest.mark.parametrize("hidden", [[], [0], [8, -1], ["wide"]])
def test_hidden_widths_that_make_no_network_are_refused_by_name(hidden):
    with pytest.raises(ValueError, match="hidden"):
        MLP((3,), 2, hidden=hidden)
