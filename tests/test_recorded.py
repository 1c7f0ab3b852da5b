"""What is recorded computes what the function computes, bit for bit, and reads the tensors of now."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lit_dqn.agents.agent import Agent
from lit_dqn.agents.c51 import C51
from lit_dqn.agents.dqn import DQN
from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.fused_adam import FusedAdam
from lit_dqn.learner import Learner
from lit_dqn.networks.heads import PlainHead
from lit_dqn.networks.impala import Impala
from lit_dqn.networks.mlp import MLP
from lit_dqn.networks.nature_cnn import NatureCNN
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.recorded import Recorded, record
from lit_dqn.types import Batch


def batch_of(seed, size=16, weighted=False, obs_dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    obs, next_obs = (torch.randint(256, (size, 3), generator=g).to(obs_dtype) for _ in range(2))
    return Batch(
        obs=obs,
        action=torch.randint(2, (size,), generator=g),
        reward=torch.randn(size, generator=g),
        discount=0.9 * torch.randint(2, (size,), generator=g),
        next_obs=next_obs,
        index=torch.arange(size),
        weight=torch.rand(size, generator=g) if weighted else None,
    )


def learner_of(network, agent):
    torch.manual_seed(0)
    q_net = MLP((3,), 2, **network)
    learner = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), DQN(**agent), max_grad_norm=0.5)
    return learner, FusedAdam([learner.online.vector], lr=0.01, betas=(0.9, 0.999), eps=1e-8)


@pytest.mark.parametrize("network", [{"hidden": [8, 8]}, {"hidden": [8], "dueling": True}])
@pytest.mark.parametrize("agent", [{"double": True}, {"loss": "huber", "tau": 0.1}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("obs_dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_recorded_learner_does_what_an_eager_one_does(network, agent, weighted, obs_dtype, autocast):
    agent = {"target_update_interval": 2} | agent
    (fast, fast_adam), (eager, eager_adam) = learner_of(network, agent), learner_of(network, agent)
    eager._gradient = eager._set_gradient
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for seed in range(6):
            batch = batch_of(seed, weighted=weighted, obs_dtype=obs_dtype)
            out, norm = fast.update(batch, fast_adam.step)
            expected, expected_norm = eager.update(batch, eager_adam.step)
            for field in ("loss", "td_error", "priority", "q_taken"):
                assert torch.equal(getattr(out, field), getattr(expected, field)), (seed, field)
            assert torch.equal(norm, expected_norm)
            assert torch.equal(fast.online.vector, eager.online.vector)
            assert torch.equal(fast.target.vector, eager.target.vector)
    assert isinstance(fast._gradient, Recorded)


@pytest.mark.parametrize("switches", [{}, {"dueling": True, "noisy": True, "layer_norm": True}])
@pytest.mark.parametrize(
    "agent",
    [
        DQN(munchausen=True),
        C51(num_atoms=5, v_min=-2, v_max=2),
        C51(num_atoms=5, v_min=-2, v_max=2, double=True),
        QRDQN(num_quantiles=4),
        QRDQN(num_quantiles=4, munchausen=True),
        IQN(num_online_taus=3, num_target_taus=4, double=True),
        IQN(munchausen=True),
    ],
    ids=lambda agent: type(agent).__name__ if isinstance(agent, Agent) else None,
)
def test_every_agent_s_recorded_updates_are_the_eager_ones(agent, switches):
    def learner():
        torch.manual_seed(0)
        q_net = MLP((3,), 2, agent.readout, hidden=[8, 8], **switches)
        made = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), agent, max_grad_norm=0.5)
        return made, FusedAdam([made.online.vector], lr=0.01, betas=(0.9, 0.999), eps=1e-8)

    (fast, fast_adam), (eager, eager_adam) = learner(), learner()
    eager._gradient = eager._set_gradient
    for seed in range(4):
        batch = batch_of(seed, weighted=seed % 2 == 0)
        for one, adam in ((fast, fast_adam), (eager, eager_adam)):
            torch.manual_seed(seed)
            one.update(batch, adam.step)
        assert torch.equal(fast.online.vector, eager.online.vector)
    assert isinstance(fast._gradient, Recorded)


def test_python_runs_once_per_shape_and_the_operators_at_every_call():
    calls, scale = [], torch.tensor(2.0)

    def function(x, y):
        calls.append(x.shape)
        return x * scale + y, y

    run = torch.no_grad()(Recorded(function).__call__)
    for factor in (2.0, 3.0, -1.0):
        scale.fill_(factor)
        for size in (2, 5):
            x, y = torch.randn(size), torch.randn(size)
            total, same = run(x, y)
            assert torch.equal(total, x * factor + y)
            assert torch.equal(same, y)
    assert calls == [(2,), (5,)]


def test_what_a_recorded_function_changes_is_changed_once_at_every_call():
    total = torch.zeros(3)

    def accumulate(x):
        return (total.add_(x),)

    run = torch.no_grad()(Recorded(accumulate).__call__)
    for value in (1.0, 1.0, 2.0):
        run(torch.full((3,), value))
    assert total.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.detach().clone().t().t(),),
        lambda x: (x.t().t().t() + 1,),
        lambda x: (x.view(2, 3) * 2, x.view(3, 2), x.view(-1)),
        lambda x: (x.t().reshape(2, 3), x),
        lambda x: (x.detach()[0], x.t().detach()),
        lambda x: tuple(torch.autograd.grad((x.requires_grad_() ** 3).sum(), x)),
        lambda x: (nn.functional.softmax(x, dim=1).argmax(dim=1),),
        lambda x: (x[torch.arange(2), x.argmax(dim=1)], x[:, torch.tensor([2, 0])], x[0, 1:]),
    ],
)
def test_renamed_tensors_are_dropped_and_nothing_else(function):
    example, x = torch.randn(2, 3), torch.randn(2, 3)
    with torch.enable_grad():
        run = record(function, example.clone())
        expected = function(x.clone())
    with torch.no_grad():
        found = run(x)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_recording_draws_nothing_and_what_is_recorded_draws_as_the_function_does():
    def noisy(x):
        return (x + torch.randn(4), torch.rand(2))

    torch.manual_seed(3)
    expected = [noisy(torch.zeros(4)) for _ in range(3)]
    torch.manual_seed(3)
    run = torch.no_grad()(Recorded(noisy).__call__)
    for noise, uniform in expected:
        found = run(torch.zeros(4))
        assert torch.equal(found[0], noise)
        assert torch.equal(found[1], uniform)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1,) if x.sum() > 0 else (x - 1,),
        lambda x: (x * x.sum().item(),),
        lambda x: (torch.from_numpy(x.numpy() + 1),),
        lambda x: (torch.tensor(x.tolist()),),
        lambda x: (x[x > 0],),
    ],
)
def test_a_function_that_reads_a_tensor_s_value_is_refused_or_right(function):
    run = torch.no_grad()(Recorded(function).__call__)
    for value in (1.0, -2.0, 3.0):
        x = torch.tensor([value, 1.0, -1.0])
        try:
            (found,) = run(x)
        except Exception:  # of many classes, as torch likes
            return
        assert torch.equal(found, function(x)[0])


def test_an_error_of_the_function_comes_out_as_it_is():
    def fails(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        torch.no_grad()(Recorded(fails).__call__)(torch.zeros(1))


class Names(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


def test_fewer_operators_run_than_were_written():
    run = record(lambda x: (x.detach().t().t().view(2, 3) + 1, x.exp())[:1], torch.zeros(2, 3))
    x = torch.ones(2, 3)
    with torch.no_grad(), Names() as ran:
        run(x)
    assert ran.names == ["add"]


def test_views_of_what_is_closed_over_are_taken_once_and_show_its_values_of_now():
    weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))

    def function(x):
        return (x @ weight.t().view(3, 2), weight.t()[0] + x.sum(), weight.detach().view(-1) + 1)

    with torch.no_grad():
        run = record(function, torch.zeros(1, 3))
        for factor in (2, -3):
            weight.mul_(factor)
            x = torch.randn(1, 3)
            with Names() as ran:
                found = run(x)
            assert sorted(ran.names) == ["add", "add", "mm", "sum"]
            for one, other in zip(found, function(x), strict=True):
                assert torch.equal(one, other)


class Counting(DQN):
    """A user's agent: its loss may keep a count, or read values."""

    calls = 0

    def loss(self, q_net, target_net, batch):
        self.calls += 1
        out = super().loss(q_net, target_net, batch)
        return replace(out, priority=torch.from_numpy(out.td_error.numpy() * self.calls))


class Remembers(MLP):
    """A user's network, with a state of its own."""

    def __init__(self):
        super().__init__((3,), 2, hidden=[8])
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, obs):
        self.seen += 1
        return super().forward(obs)


def test_a_user_s_agent_runs_as_it_is_written_at_every_update():
    q_net = MLP((3,), 2, hidden=[8])
    learner = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), agent := Counting(), None)
    for count in (1, 2, 3):
        out, _ = learner.update(batch_of(count), lambda: None)
        assert agent.calls == count
        torch.testing.assert_close(out.priority, out.td_error * count)


def test_a_network_with_buffers_runs_as_it_is_written():
    encoder = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8))
    q_net = QNetwork(encoder, PlainHead(8, 8, 2))
    learner = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), DQN(), None)
    for count in (1, 2, 3):
        learner.update(batch_of(count), lambda: None)
        assert encoder[1].num_batches_tracked == count


def test_a_user_s_network_runs_as_it_is_written_at_every_update():
    q_net = Remembers()
    learner = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), DQN(), None)
    for count in (1, 2, 3):
        learner.update(batch_of(count), lambda: None)
        assert q_net.seen == count


def test_batches_with_and_without_weights_do_not_mix():
    weighted, plain = batch_of(0, weighted=True), batch_of(0)
    (one, _), (other, _) = learner_of({"hidden": [8]}, {}), learner_of({"hidden": [8]}, {})
    other._gradient = other._set_gradient
    for batch in (plain, weighted, plain, weighted):
        norms = [learner.update(batch, lambda: None)[1] for learner in (one, other)]
        assert torch.equal(*norms)


@pytest.mark.parametrize("recorded", [True, False])
def test_updates_of_one_autocast_context_see_the_weights_of_the_update_before(recorded):
    (together, adam), (apart, other) = learner_of({"hidden": [8]}, {}), learner_of({"hidden": [8]}, {})
    if not recorded:
        together._gradient, apart._gradient = together._set_gradient, apart._set_gradient
    with torch.autocast("cpu", torch.bfloat16):
        for seed in range(4):
            together.update(batch_of(seed), adam.step)
    for seed in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            apart.update(batch_of(seed), other.step)
    assert torch.equal(together.online.vector, apart.online.vector)


@pytest.mark.parametrize(
    ("network", "agent", "size"),
    [(NatureCNN, DQN(), 1), (Impala, IQN(num_online_taus=3, munchausen=True), 5)],
    ids=["nature_cnn", "impala"],
)
def test_recorded_updates_of_networks_for_images_are_the_eager_ones(network, agent, size):
    def learner():
        torch.manual_seed(0)
        q_net = network((2, 36, 36), 2, agent.readout, ImageLayout((36, 36), stacked=True), hidden=[8])
        made = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), agent, max_grad_norm=0.5)
        return made, FusedAdam([made.online.vector], lr=0.01, betas=(0.9, 0.999), eps=1e-8)

    (fast, fast_adam), (eager, eager_adam) = learner(), learner()
    eager._gradient = eager._set_gradient
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        obs, next_obs = (
            torch.randint(256, (size, 2, 36, 36), generator=g, dtype=torch.uint8) for _ in range(2)
        )
        batch = replace(batch_of(seed, size), obs=obs, next_obs=next_obs)
        torch.manual_seed(seed)
        out, norm = fast.update(batch, fast_adam.step)
        torch.manual_seed(seed)
        expected, expected_norm = eager.update(batch, eager_adam.step)
        assert torch.equal(out.loss, expected.loss)
        assert torch.equal(norm, expected_norm)
        assert torch.equal(fast.online.vector, eager.online.vector)
    assert isinstance(fast._gradient, Recorded)
