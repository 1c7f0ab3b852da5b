"""The process's global generators: noisy and sampling networks draw from torch's, an env may from any.

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
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        seed_global_generators(root, *counters)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
