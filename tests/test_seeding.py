"""One root seed, one stream per owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lit_dqn.seeding import integer_seed, integer_seeds, numpy_generator


def test_the_same_words_give_the_same_stream_and_any_other_word_another():
    def draw(*words):
        return tuple(numpy_generator(*words).integers(2**63, size=4).tolist())

    words = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", 2), (0, "a", 1, 2), (0, "a", 2, 1)]
    assert [draw(*w) for w in words] == [draw(*w) for w in words]
    assert len({draw(*w) for w in words}) == len(words)


def test_the_generator_is_pcg64_whose_state_loads_without_running_code(tmp_path):
    generator = numpy_generator(3, "exploration")
    generator.random(5)
    torch.save(generator.bit_generator.state, tmp_path / "state.pt")
    other = numpy_generator(4, "other")
    other.bit_generator.state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert isinstance(generator.bit_generator, np.random.PCG64)
    assert other.random(3).tolist() == generator.random(3).tolist()


def test_integer_seeds_are_distinct_python_ints_that_every_env_takes():
    seeds = integer_seeds(1000, 0, "train envs", 12345)
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert len(set(seeds)) == 1000
    assert seeds[:10] == integer_seeds(10, 0, "train envs", 12345)
    assert 0 <= integer_seed(0, "replay") < 2**31


def test_seeds_of_neighbouring_roots_and_env_steps_do_not_overlap():
    groups = [integer_seeds(64, root, "train envs", step) for root in range(5) for step in range(0, 50, 10)]
    assert len({seed for group in groups for seed in group}) == sum(map(len, groups))


@pytest.mark.parametrize("root", [0, 2**31, 2**40])
def test_roots_of_any_size_are_taken(root):
    assert integer_seed(root, "torch") != integer_seed(root + 1, "torch")


def test_no_global_generator_is_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    numpy_generator(0, "x").random(10)
    integer_seeds(5, 0, "x")
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
