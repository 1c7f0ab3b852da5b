"""Networks for images: where the channels are, what the convolutions see, what comes out."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

from lit_dqn import compose, load, train
from lit_dqn.agents.c51 import C51
from lit_dqn.agents.dqn import DQN
from lit_dqn.agents.iqn import IQN
from lit_dqn.agents.qrdqn import QRDQN
from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.errors import UserError
from lit_dqn.learner import Learner
from lit_dqn.networks.images import Images
from lit_dqn.networks.impala import Impala
from lit_dqn.networks.nature_cnn import NatureCNN
from lit_dqn.networks.qnetwork import without_noise
from test_config import IMAGES, TINY

SCALAR = DQN().readout
AGENTS = [DQN(), C51(v_min=0.0, v_max=1.0), QRDQN(num_quantiles=3), IQN(num_acting_taus=3)]


@pytest.mark.parametrize(
    ("shape", "stacked", "layout", "axes"),
    [
        ((84, 84), False, "auto", "hw"),
        ((84, 84), True, "auto", "khw"),
        ((84, 84, 3), False, "auto", "hwc"),
        ((84, 84, 1), True, "auto", "khwc"),
        ((4, 84, 84), False, "auto", "chw"),
        ((3, 20, 40), True, "auto", "kchw"),
        ((10, 10, 7), False, "hwc", "hwc"),
        ((7, 10, 10), False, "chw", "chw"),
        ((3, 84, 3), False, "hwc", "hwc"),
        ((3, 84, 84), False, "hwc", "hwc"),  # what is said counts
    ],
)
def test_the_axes_of_an_image_are_told_from_its_shape_or_said(shape, stacked, layout, axes):
    assert ImageLayout(shape, stacked, layout).axes() == axes


@pytest.mark.parametrize("shape", [(10, 10, 7), (3, 84, 3), (1, 1, 1), (5, 5, 5)])
def test_a_shape_that_leaves_the_order_in_doubt_is_refused_until_it_is_said(shape):
    with pytest.raises(UserError, match=r"env\.image_layout=hwc .* env\.image_layout=chw"):
        ImageLayout(shape).axes()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4, 5)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(UserError, match=r"needs images .* network=mlp"):
        ImageLayout(shape).axes()


def test_stacked_frames_and_channels_become_channels_oldest_frame_first():
    frames = torch.arange(2 * 3 * 4 * 5).view(1, 2, 3, 4, 5)  # [B, k, c, h, w]
    expected = frames.reshape(1, 6, 4, 5).float()
    first = Images((2, 3, 4, 5), ImageLayout((3, 4, 5), stacked=True, layout="chw"))
    last = Images((2, 4, 5, 3), ImageLayout((4, 5, 3), stacked=True, layout="hwc"))
    assert torch.equal(first(frames.float()), expected)
    assert torch.equal(last(frames.permute(0, 1, 3, 4, 2).float()), expected)
    assert first.channels == last.channels == 6


def test_bytes_are_scaled_to_one_and_floats_are_taken_as_they_are():
    images = Images((2, 2), ImageLayout((2, 2)))
    obs = torch.tensor([[[0, 51], [102, 255]]], dtype=torch.uint8)
    assert images(obs).tolist() == [[[[0.0, pytest.approx(0.2)], [pytest.approx(0.4), 1.0]]]]
    assert torch.equal(images(obs.float()), obs.float().unsqueeze(1))


@pytest.mark.parametrize("network", [NatureCNN, Impala])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize(("dueling", "hidden"), [(False, [8]), (True, [9, 8])])
def test_images_of_any_layout_give_one_value_per_action(network, agent, dueling, hidden):
    torch.manual_seed(0)
    layouts = [((40, 36, 3), "hwc"), ((3, 40, 36), "chw")]
    nets = [
        network(shape, 5, agent.readout, ImageLayout(shape, layout=layout), hidden=hidden, dueling=dueling)
        for shape, layout in layouts
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    obs = torch.randint(0, 256, (2, 40, 36, 3), dtype=torch.uint8)
    with without_noise(nets[0]), without_noise(nets[1]):
        values = nets[0](obs).q_values
        torch.testing.assert_close(nets[1](obs.permute(0, 3, 1, 2)).q_values, values)
    assert values.shape == (2, 5)


def test_the_nature_network_has_the_papers_number_of_weights():
    net = NatureCNN((4, 84, 84), 6, SCALAR, ImageLayout((84, 84), stacked=True))
    convolutions = 32 * (4 * 64 + 1) + 64 * (32 * 16 + 1) + 64 * (64 * 9 + 1)
    assert sum(p.numel() for p in net.parameters()) == convolutions + 512 * (64 * 7 * 7 + 1) + 6 * 513


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("pool", "pixels"), [(False, 11 * 11), (True, 6 * 6)])
def test_the_impala_network_has_fifteen_convolutions_and_the_last_sections_features(width, pool, pixels):
    layout = ImageLayout((84, 84), stacked=True)
    net = Impala((4, 84, 84), 6, SCALAR, layout, width=width, adaptive_pool=pool)
    kernels = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [k.out_channels for k in kernels] == [c * width for c in (16, 32, 32) for _ in range(5)]
    assert net.encoder(torch.zeros(1, 4, 84, 84)).shape == (1, 32 * width * pixels)


def test_spectral_norm_leaves_no_residual_convolution_a_singular_value_above_one():
    torch.manual_seed(0)
    net = Impala((12, 12), 2, SCALAR, ImageLayout((12, 12)), spectral_norm=True)
    for parameter in net.encoder.parameters():
        parameter.data *= 5
    for _ in range(100):  # one power iteration each
        net(torch.rand(1, 12, 12))
    kernels = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    largest = [torch.linalg.svdvals(k.weight.flatten(1)).max().item() for k in kernels]
    for section, residual in itertools.product(range(3), range(1, 5)):
        assert largest[5 * section + residual] == pytest.approx(1.0, abs=0.05)
    assert min(largest[::5]) > 2  # the sections' first ones are left alone


def test_every_parameter_takes_part_in_the_values():
    torch.manual_seed(1)
    for network in (NatureCNN, Impala):
        net = network((36, 36), 3, SCALAR, ImageLayout((36, 36)), hidden=[16], dueling=True)
        (net(torch.rand(16, 36, 36)).q_values * torch.arange(3.0)).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["env=cartpole", "network=nature_cnn"], r"needs images .* shape \[4\]; type network=mlp"),
        (["env=cartpole", "env.image_layout=hwc"], r"env\.image_layout=hwc is for images"),
        (["env=cartpole", "env.image_layout=hcw"], r"env\.image_layout must be"),
        ([*IMAGES[:2], "+env.kwargs.shape=[20,20]", "network=nature_cnn"], "at least 36 x 36, got 20 x 20"),
        ([*IMAGES[:2], "+env.kwargs.shape=[12,12,12]", "network=impala"], r"type env\.image_layout=hwc"),
        ([*IMAGES, "network=impala", "network.width=0"], r"network\.width must be"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(typed, said, tmp_path):
    with pytest.raises(UserError, match=said):
        train(compose(typed), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_said_layout_is_what_the_checkpoint_is_read_by(tmp_path):
    shape = "+env.kwargs.shape=[6,6,6]"
    config = compose(
        [*TINY, *IMAGES[:2], shape, "env.image_layout=chw", "network=impala", "total_env_steps=100"]
    )
    train(config, tmp_path / "run")
    policy = load(tmp_path / "run" / "checkpoints" / "last.ckpt")
    images = policy.q_net.encoder[0]
    obs = torch.randint(0, 256, (3, 6, 6, 6), dtype=torch.uint8)
    assert torch.equal(images(obs), obs.float() / 255)  # the axes stay in their order
    assert policy.act(obs.numpy()).shape == (3,)
    ckpt = [f"ckpt={tmp_path / 'run' / 'checkpoints' / 'last.ckpt'}", "mode=eval", "trust=true"]
    with pytest.raises(UserError, match=r"env\.image_layout belongs to the checkpoint.*image_layout=chw"):
        compose([*ckpt, "env.image_layout=hwc"])
    assert compose([*ckpt, "env.image_layout=chw"]).env.image_layout == "chw"


@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_a_synced_target_with_spectral_norm_is_the_online_function(tau):
    torch.manual_seed(0)
    net = Impala((12, 12), 2, SCALAR, ImageLayout((12, 12)), spectral_norm=True)
    target = copy.deepcopy(net).requires_grad_(False)
    learner = Learner(net, target, DQN(tau=tau), None)
    obs = torch.rand(3, 12, 12)
    for parameter in net.parameters():
        parameter.data += 0.3 * parameter.data.abs().mean() * torch.randn_like(parameter)
    for _ in range(20):
        net(obs)
    with torch.no_grad():
        learner._sync_target()
    assert all(torch.equal(a, b) for a, b in zip(target.buffers(), net.buffers(), strict=True))
    with without_noise(net), without_noise(target):
        assert torch.equal(target(obs).q_values, net(obs).q_values) == (tau == 1.0)
