"""The loss of DQN against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

import tables
from lit_dqn.agents.dqn import DQN
from tables import batch_of


def table(*rows):
    return tables.table(DQN(), [[[q] for q in row] for row in rows])


ONLINE = ((1.0, 2.0), (7.0, 5.0))  # prefers action 0 in state 1
TARGET = ((0.0, 3.0), (10.0, 20.0))  # prefers action 1 there
BATCH = {
    "state": [0, 0, 1],
    "action": [0, 1, 1],
    "reward": [1.0, 0.5, -1.0],
    "discount": [0.5, 0.0, 0.25],
    "next_state": [1, 1, 0],
}


@pytest.mark.parametrize(
    ("double", "targets"),
    [
        # plain: reward + discount * max of the target net
        (False, [1.0 + 0.5 * 20.0, 0.5, -1.0 + 0.25 * 3.0]),
        # double: the online net prefers action 0 in state 1 and action 1 in state 0
        (True, [1.0 + 0.5 * 10.0, 0.5, -1.0 + 0.25 * 3.0]),
    ],
)
def test_the_target_is_valued_by_the_target_net_at_the_action_that_max_or_the_online_net_picks(
    double, targets
):
    out = DQN(double=double).loss(table(*ONLINE), table(*TARGET), batch_of(**BATCH))
    taken = [1.0, 2.0, 5.0]
    errors = [abs(t - q) for t, q in zip(targets, taken, strict=True)]
    assert out.q_taken.tolist() == taken
    assert out.td_error.tolist() == errors
    assert out.priority.tolist() == errors
    assert out.loss.tolist() == [0.5 * e**2 for e in errors]


def test_huber_is_quadratic_within_one_and_linear_beyond():
    batch = batch_of([0, 0, 0], [0, 0, 0], [1.5, 2.0, -3.0], [0.0] * 3, [1, 1, 1])
    out = DQN(loss="huber").loss(table(*ONLINE), table(*TARGET), batch)
    assert out.td_error.tolist() == [0.5, 1.0, 4.0]
    assert out.loss.tolist() == [0.125, 0.5, 3.5]


def test_the_gradient_of_mse_is_the_error_and_that_of_huber_the_clipped_error():
    batch = batch_of([0, 1], [0, 1], [4.0, 4.5], [0.0, 0.0], [1, 0])
    gradients = {}
    for loss in ("mse", "huber"):
        net = table(*ONLINE)
        DQN(loss=loss).loss(net, table(*TARGET), batch).loss.sum().backward()
        gradients[loss] = net.head.raw_outputs.grad.squeeze(-1).tolist()
    assert gradients["mse"] == [[-3.0, 0.0], [0.0, 0.5]]
    assert gradients["huber"] == [[-1.0, 0.0], [0.0, 0.5]]


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_reaches_the_target_net_nor_the_online_net_through_the_next_observation(double):
    online, target = table(*ONLINE), table(*TARGET)  # both would take a gradient
    batch = batch_of([0, 0], [0, 1], [1.0, 1.0], [0.9, 0.9], [1, 1])
    out = DQN(double=double).loss(online, target, batch)
    out.loss.sum().backward()
    assert target.head.raw_outputs.grad is None
    assert online.head.raw_outputs.grad[1].flatten().tolist() == [0.0, 0.0]  # state 1 is only a next one
    assert (online.head.raw_outputs.grad[0] != 0).all()
    assert [v.requires_grad for v in (out.td_error, out.priority, out.q_taken)] == [False] * 3


def test_changing_either_net_changes_a_double_target_and_only_the_target_net_changes_a_plain_one():
    def error(double, online, target):
        batch = batch_of([0], [0], [0.0], [1.0], [1])
        return DQN(double=double).loss(table(*online), table(*target), batch).td_error.item()

    other_online, other_target = (ONLINE[0], (5.0, 7.0)), (TARGET[0], (11.0, 21.0))
    assert error(True, ONLINE, TARGET) == 9.0
    assert error(True, other_online, TARGET) == 19.0
    assert error(True, ONLINE, other_target) == 10.0
    assert error(False, ONLINE, TARGET) == error(False, other_online, TARGET) == 19.0
    assert error(False, ONLINE, other_target) == 20.0


@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("size", [1, 2, 7])  # as many items as actions must not broadcast either
def test_everything_a_loss_returns_is_one_float32_per_item(loss, size):
    batch = batch_of([0] * size, [1] * size, [1.0] * size, [0.9] * size, [1] * size)
    out = DQN(loss=loss).loss(table(*ONLINE), table(*TARGET), batch)
    for value in (out.loss, out.td_error, out.priority, out.q_taken):
        assert value.shape == (size,)
        assert value.dtype == torch.float32


def test_an_item_s_loss_does_not_depend_on_the_rest_of_the_batch():
    whole = DQN(double=True).loss(table(*ONLINE), table(*TARGET), batch_of(**BATCH)).loss
    for i in range(3):
        one = batch_of(**{name: [column[i]] for name, column in BATCH.items()})
        assert DQN(double=True).loss(table(*ONLINE), table(*TARGET), one).loss.item() == whole[i].item()


@pytest.mark.parametrize(
    ("option", "value"),
    [("target_update_interval", 0), ("tau", 0.0), ("tau", 1.5), ("loss", "l1"), ("double", "maybe")],
)
def test_an_option_out_of_its_range_is_refused_by_name(option, value):
    with pytest.raises(ValueError, match=option):
        DQN(**{option: value})
