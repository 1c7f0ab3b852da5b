"""The process's global generators: nothing of ours draws from them while training, but an env may.

Their states cannot be saved everywhere (NumPy's is no plain container), so at a checkpoint they are seeded
anew as a function of where the run is, as the envs are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lit_dqn.seeding import integer_seed


def seed_global_generators(root: int, *counters: int) -> None:
    """Seed Python's, NumPy's and torch's generator as a function of the run's seed and the counters."""
    torch.manual_seed(integer_seed(root, "torch", *counters))
    np.random.seed(integer_seed(root, "numpy", *counters))  # noqa: NPY002
    random.seed(integer_seed(root, "python", *counters))


@contextmanager
def own_global_generators(root: int, *counters: int) -> Iterator[None]:
    """Generators seeded for what happens inside; afterwards they are as they were."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    seed_global_generators(root, *counters)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(torch_state)
